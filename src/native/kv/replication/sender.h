// The primary's end of replication, for one replica: sends a base copy if the replica needs one, then the log
// as it grows. Pieces lie in a local ring and, by RDMA WRITE, at the same place in the replica's ring, which
// it polls; a message wakes it when necessary. The engine's event loop sends pieces at the end of a turn if
// it need not wait for a lock. The sender's own thread, without Python, makes the base copy and does all that
// may block.
// Depends on the engine, its event loop, the backlog and a session; knows nothing of roles or handshakes.
#pragma once

#include <cstdlib>
#include <deque>
#include <memory>
#include <span>
#include <thread>

#include "kv/frontends/event_loop.h"
#include "kv/journal/base_copy.h"
#include "kv/replication/replication_layout.h"
#include "transport/node/node.h"

namespace verbena::kv {

struct ReplicationSenderOptions {
  uint64_t ring_key = 0;  // key of the replica's ring
  uint64_t ring_tag = 0;  // see LogPiece::ring_tag
  size_t ring_bytes = 4u << 20;
  bool by_write = true;            // false: all pieces travel in messages
  const void* position = nullptr;  // where the replica WRITEs its ReplicaPosition; null: nowhere
  size_t max_inline = 512;         // a message carries a piece up to this length
};

struct ReplicationSenderCounters {
  uint64_t sent = 0, acknowledged = 0;                          // positions in the stream of pieces
  uint64_t lsn = 0, offset = 0, durable = 0;                    // from the last receipt
  uint64_t receipt_ns = 0;                                      // time of the last receipt
  uint64_t writes = 0, messages = 0, inlined = 0, repeats = 0;  // inlined: pieces inside messages
  uint64_t yielded_ns = 0;  // time that the event loop slept for the replica
  bool copying = false, ended = false;
  double fraction = 1;
  std::string why;
};

class ReplicationSender {
 public:
  // Begins with `copy`, or with `reader`; the other is empty. `on_receipt` may be called on any thread.
  ReplicationSender(std::shared_ptr<Engine> engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                    std::shared_ptr<transport::Session> session, const ReplicationSenderOptions& options,
                    std::unique_ptr<BaseCopy> copy, std::unique_ptr<BacklogReader> reader,
                    std::function<void()> on_receipt);
  // The caller must hold neither the engine's lock nor the node's.
  ~ReplicationSender();

  ReplicationSenderCounters counters() const;
  // True: requests receipts often and calls on_receipt for each, because clients wait for replicas.
  void set_eager(bool eager);
  // Ends the stream without waiting for the thread: nothing is sent after this returns, unless a step is
  // under way. Any thread may call it.
  void stop(const std::string& why);

 private:
  // State that receipts change; they may come after the sender is destroyed.
  struct Shared {
    mutable std::mutex mutex;
    ReplicationSenderCounters counters;
    bool rewind = false;
    uint32_t rewinds = 0;
    std::function<void()> on_receipt;
    Backlog* backlog = nullptr;
    std::atomic<bool> eager{false};
  };
  static constexpr size_t kPieceBytes = 64u << 10;
  static constexpr uint64_t kPingNs = 1'000'000'000, kEagerPingNs = 5'000'000;
  // Least time between two pieces, so that records are sent together; the second while the replica is active.
  static constexpr uint64_t kSendIntervalNs = 150'000, kActiveSendIntervalNs = 80'000;
  // An active replica is late if it has not applied a piece after kLateNs. The event loop then sleeps in
  // steps of kYieldSleepNs, kMaxYieldNs at most.
  static constexpr uint64_t kLateNs = 400'000, kMaxYieldNs = 750'000, kYieldSleepNs = 50'000;

  enum class Step : uint8_t { done, idle, early, blocked };
  void run(const std::stop_token& stop);
  // On the engine's event loop, with its lock:
  uint64_t turn(uint64_t now);
  void yield_to_replica(uint64_t now);
  // With work_mutex_ held:
  Step step(uint64_t now, bool by_loop);
  bool rewind_if_requested();  // false: the stream has ended
  bool has_more() const;       // records that are not in the ring yet
  bool fill();
  size_t read(std::span<char> to);
  // Sends the next piece or, if there is none, a message that requests a receipt. With the node's lock.
  // False: not possible now.
  bool send();
  bool write(size_t at, size_t bytes);
  bool wants_receipt(uint64_t end) const;
  bool is_early(uint64_t now) const;
  ReplicaPosition replica_position() const;
  void drop_applied(uint64_t expected);
  uint64_t send_interval_ns() const {
    return replica_position().active ? kActiveSendIntervalNs : kSendIntervalNs;
  }
  uint64_t ping_ns() const;

  static void take_receipt(Shared& shared, const transport::Operation& call, uint64_t end, uint32_t rewinds);
  void end(const std::string& why);
  template <typename Function>
  void or_end(Function function);
  void finish();  // at the end of the thread

  const std::shared_ptr<Engine> engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const ReplicationSenderOptions options_;
  std::unique_ptr<BaseCopy> copy_;
  std::unique_ptr<BacklogReader> reader_;
  Backlog& backlog_;
  uint64_t send_turn_ = 0, yield_turn_ = 0;
  std::mutex work_mutex_;  // for the members below; the event loop only tries to lock it
  // From calloc(), so that a long ring takes memory only where it was filled, and is not zeroed here.
  const std::unique_ptr<void, decltype(&std::free)> ring_memory_;
  const std::span<std::byte> ring_;
  transport::Registration registration_;
  std::string unplaced_;      // records that are not in the ring yet
  size_t unplaced_from_ = 0;  // the part of unplaced_ before this is in the ring
  uint64_t visible_ns_ = 0;   // LogPiece::visible_ns of the next piece
  uint64_t filled_ = 0, sent_ = 0, sent_ns_ = 0;
  uint64_t requested_ = 0, requested_ns_ = 0;  // position and time of the last request for a receipt
  uint32_t rewinds_ = 0;
  struct Unapplied {
    uint64_t end, visible_ns;
  };
  std::deque<Unapplied> unapplied_;                       // pieces that an active replica has not applied yet
  uint64_t yield_budget_ns_ = 0, budget_updated_ns_ = 0;  // time that may be slept, as of budget_updated_ns_
  uint64_t yielded_for_ = 0;                              // end of the piece for which sleeping did not help
  bool stopped_ = false;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::jthread thread_;
};

}  // namespace verbena::kv
