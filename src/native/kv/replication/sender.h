// Feeds one replica: a base copy if it needs one, then the log as it grows. Pieces lie in a ring here and, by
// RDMA WRITE, at the same place of the replica's ring, where it looks for them; a message wakes it, if need
// be. The engine's loop sends them at the end of a turn if nothing is in the way. A thread of the sender's
// own, without Python, makes the copy and does whatever may have to wait.
#pragma once

#include <deque>
#include <thread>

#include "kv/frontends/event_loop.h"
#include "kv/journal/base_copy.h"
#include "kv/replication/replication_layout.h"
#include "transport/node/node.h"

namespace verbena::kv {

struct ReplicationSenderOptions {
  uint64_t ring_key = 0;  // of the replica's region
  uint64_t mark = 0;      // see LogPiece
  size_t ring_bytes = 4u << 20;
  bool by_write = true;         // else by messages alone
  const void* place = nullptr;  // where it WRITEs its LogPlace, if it does
  size_t max_inline = 512;      // pieces up to this long travel in the message
};

struct ReplicationSenderCounters {
  uint64_t sent = 0, acknowledged = 0;                          // positions of pieces
  uint64_t lsn = 0, offset = 0, durable = 0;                    // as the replica has said last
  uint64_t receipt_ns = 0;                                      // when
  uint64_t writes = 0, messages = 0, inlined = 0, repeats = 0;  // inlined: pieces in messages
  uint64_t rested_ns = 0;                                       // so that the replica could catch up
  bool copying = false, ended = false;
  double fraction = 1;
  std::string why;
};

class ReplicationSender {
 public:
  // Either `copy` or `reader`.
  ReplicationSender(std::shared_ptr<Engine> engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                    std::shared_ptr<transport::Session> session, const ReplicationSenderOptions& options,
                    std::unique_ptr<BaseCopy> copy, std::unique_ptr<BacklogReader> reader,
                    std::function<void()> on_receipt);
  // Without the engine's lock and the node's.
  ~ReplicationSender();

  ReplicationSenderCounters counters() const;
  // Somebody waits for receipts: they are asked for often, and told of.
  void set_eager(bool eager);

 private:
  // What receipts change: they may come when the sender is gone.
  struct Shared {
    mutable std::mutex mutex;
    ReplicationSenderCounters counters;
    bool rewind = false;
    uint32_t round = 0;  // grows with every rewind
    std::function<void()> on_receipt;
    Backlog* backlog = nullptr;
    std::atomic<bool> eager{false};
  };
  static constexpr size_t kPieceBytes = 64u << 10;
  static constexpr uint64_t kPingNs = 1'000'000'000, kEagerPingNs = 5'000'000;
  // From one piece to the next, so that there is something to send; the second if the replica hurries.
  static constexpr uint64_t kGapNs = 150'000, kHurriedGapNs = 80'000;
  // A replica that hurries is late when it has not applied what is older; how long we then rest at most.
  static constexpr uint64_t kLateNs = 400'000, kMostRestNs = 750'000, kNapNs = 50'000;

  enum class Step : uint8_t { done, idle, early, stuck };
  void run(const std::stop_token& stop);
  // On the engine's loop, with its lock:
  uint64_t turn(uint64_t now);
  void give_way(uint64_t now);
  // With work_:
  Step step(uint64_t now, bool by_loop);
  void rewind_if_asked();
  bool has_more() const;  // that is not in the ring
  bool fill();
  size_t read(std::span<char> to);
  // The piece that comes next, or, if there is none, a message that asks for a receipt. With the node's lock.
  // False: not now.
  bool send();
  bool write(size_t at, size_t bytes);
  bool wants_receipt(uint64_t end) const;
  bool is_early(uint64_t now) const;
  LogPlace place() const;
  void forget_seen(uint64_t expected);
  uint64_t gap_ns() const { return place().hurries ? kHurriedGapNs : kGapNs; }
  uint64_t ping_ns() const;

  static void take_receipt(Shared& shared, const transport::Call& call, uint64_t end, uint32_t round);
  void end(const std::string& why);

  const std::shared_ptr<Engine> engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const ReplicationSenderOptions options_;
  std::unique_ptr<BaseCopy> copy_;
  std::unique_ptr<BacklogReader> reader_;
  Backlog& backlog_;
  uint64_t turn_ = 0, rest_ = 0;
  std::mutex work_;  // for what is below; the loop only tries
  std::vector<std::byte> ring_;
  transport::Registration registration_;
  std::string waiting_;      // records that have no place in the ring yet
  size_t waiting_from_ = 0;  // of it: the rest is in the ring
  uint64_t told_ns_ = 0;     // see LogPiece: of the next one
  uint64_t filled_ = 0, sent_ = 0, sent_ns_ = 0;
  uint64_t asked_ = 0, asked_ns_ = 0;  // up to where a receipt has been asked for, and when
  uint32_t round_ = 0;
  struct Unseen {
    uint64_t end, told_ns;
  };
  std::deque<Unseen> unseen_;                  // pieces that the replica has not applied, if it tells
  uint64_t may_rest_ns_ = 0, counted_ns_ = 0;  // as of then
  uint64_t rested_for_ = 0;                    // a piece's end: in vain
  bool over_ = false;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::jthread thread_;
};

}  // namespace verbena::kv
