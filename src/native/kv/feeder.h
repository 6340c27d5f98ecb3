// Feeds one replica: a base copy if it needs one, then the log as it grows. A thread of its own, without the
// engine's lock but for the images of the copy, and without Python. Bytes lie in a ring here and, by RDMA
// WRITE, at the same place of the replica's ring; a message behind each WRITE says that it is there.
#pragma once

#include <thread>

#include "kv/base_copy.h"
#include "kv/loop.h"
#include "kv/replication_layout.h"
#include "transport/node.h"

namespace verbena::kv {

struct FeederOptions {
  uint64_t ring_key = 0;  // of the replica's region
  size_t ring_bytes = 4u << 20;
  bool by_write = true;     // else by messages alone
  size_t max_inline = 512;  // pieces up to this long travel in the message
};

struct FeederFigures {
  uint64_t sent = 0, acknowledged = 0;        // of the stream
  uint64_t lsn = 0, offset = 0, durable = 0;  // as the replica has said last
  uint64_t receipt_ns = 0;                    // when
  uint64_t writes = 0, messages = 0, repeats = 0;
  bool copying = false, ended = false;
  double fraction = 1;
  std::string why;
};

class Feeder {
 public:
  // Either `copy` or `follower`.
  Feeder(std::shared_ptr<Engine> engine, std::shared_ptr<transport::Node> node,
         std::shared_ptr<transport::Session> session, const FeederOptions& options,
         std::unique_ptr<BaseCopy> copy, std::unique_ptr<Follower> follower,
         std::function<void()> on_receipt);
  // Without the engine's lock and the node's.
  ~Feeder();

  FeederFigures figures() const;
  // Somebody waits for receipts: they are asked for often, and told of.
  void set_eager(bool eager);

 private:
  // What receipts change: they may come when the feeder is gone.
  struct Shared {
    mutable std::mutex mutex;
    FeederFigures figures;
    bool rewind = false;
    uint32_t round = 0;  // grows with every rewind
    std::function<void()> on_receipt;
    Tail* tail = nullptr;
    std::atomic<bool> eager{false};
  };
  static constexpr size_t kPieceBytes = 64u << 10;
  static constexpr uint64_t kPingNs = 1'000'000'000, kEagerPingNs = 5'000'000;
  // While nobody waits for them, receipts are asked for so often.
  static constexpr uint64_t kReceiptNs = 10'000'000;
  // From one piece to the next, after a short and after a long one, so that there is something to send: each
  // costs both ends several wake-ups, whatever its length.
  static constexpr uint64_t kGapNs = 200'000, kLongGapNs = 500'000;
  static constexpr size_t kLongPiece = 8u << 10;

  void run(const std::stop_token& stop);
  bool fill();
  // False: not now. `length` 0: asks for a receipt.
  bool send(size_t length);
  bool wants_receipt(size_t length) const;
  void gather();
  uint64_t ping_ns() const;
  static void take_receipt(Shared& shared, const transport::Call& call, uint64_t end, uint32_t round);
  void end(const std::string& why);

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const FeederOptions options_;
  std::unique_ptr<BaseCopy> copy_;
  std::unique_ptr<Follower> follower_;
  Tail& tail_;
  std::vector<std::byte> ring_;
  transport::Registration registration_;
  std::string waiting_;      // records that have no place in the ring yet
  size_t waiting_from_ = 0;  // of it: the rest is in the ring
  uint64_t filled_ = 0, sent_ = 0, sent_ns_ = 0, gap_ns_ = 0;
  uint64_t asked_ = 0, asked_ns_ = 0;  // up to where a receipt has been asked for, and when
  uint32_t round_ = 0;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::jthread thread_;
};

}  // namespace verbena::kv
