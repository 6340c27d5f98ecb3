// The replica's end of replication: applies pieces of the primary's log on the engine's event loop and
// replies with receipts. The primary WRITEs pieces into this node's ring; while it does, the loop polls the
// ring in every turn and at least a few thousand times a second, so that pieces need no wake-up.
// Depends on the engine, its event loop and a node of the transport; knows nothing of roles, handshakes or
// Python.
#pragma once

#include <deque>
#include <mutex>

#include "kv/engine/recent_times.h"
#include "kv/frontends/event_loop.h"
#include "kv/journal/log_applier.h"
#include "kv/replication/replication_layout.h"
#include "transport/node/node.h"
#include "util/random.h"

namespace verbena::kv {

struct ReplicationReceiverCounters {
  uint64_t lsn = 0, offset = 0;
  uint64_t pieces = 0, bytes = 0, written = 0, damaged = 0, received_ns = 0;
  bool complete = false, begun = false;
  // Times from when a piece's first record became visible on the primary until it became visible here. They
  // compare the clocks of two hosts, and so include the difference of these clocks.
  RecentTimes lags;
  std::string error;
};

class ReplicationReceiver : public std::enable_shared_from_this<ReplicationReceiver> {
 public:
  // Receives the pieces of one session. `applier` must live until close().
  static std::shared_ptr<ReplicationReceiver> make(Engine& engine, EventLoop& loop,
                                                   std::shared_ptr<transport::Node> node, uint64_t session,
                                                   std::span<std::byte> ring, LogApplier& applier);
  // Starts as the primary's reply demands: with a base copy (`full`: deletes all keys here) or with the
  // record at `offset`. Pieces that arrived before this call are applied now. `position_key`: the key of the
  // region on the primary that takes a ReplicaPosition; 0: none. Call it with the engine's lock.
  void begin(bool full, uint64_t offset, uint64_t position_key);
  void close();  // with the engine's lock
  ReplicationReceiverCounters counters() const;
  uint64_t ring_tag() const { return ring_tag_; }  // see LogPiece::ring_tag

 private:
  class LogHandler;
  ReplicationReceiver(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                      uint64_t session, std::span<std::byte> ring, LogApplier& applier)
      : engine_(engine),
        loop_(loop),
        node_(std::move(node)),
        session_(session),
        ring_(ring.first(usable_ring(ring.size()))),
        ring_tag_(random_value<uint64_t>()),
        applier_(&applier) {}
  struct Message {
    LogMessage header;
    uint64_t call;
    std::string piece;
  };
  // Interval between polls of the ring while active, and otherwise; the longest duration of one poll.
  static constexpr uint64_t kActivePollIntervalNs = 200'000, kPollIntervalNs = 500'000, kBudgetNs = 2'000'000;
  // A replica counts as active for this long after a client command, or after frequent messages.
  static constexpr uint64_t kActiveNs = 1'000'000'000;
  void take(const transport::Request& request);  // on the node's thread
  void post();
  // On the loop's thread, with the engine's lock:
  void work();
  uint64_t poll(uint64_t now);         // returns the time of the next poll
  bool poll_until(uint64_t deadline);  // false: the deadline has passed, and there may be more pieces
  // Copies, checks and applies a piece. `written`: it lies in the ring, where the primary can change it at
  // any time. False: it is not the expected piece, or not complete.
  bool apply_piece(std::string_view bytes, bool written);
  template <typename Function>
  void or_fault(Function function);
  void commit_applied();
  void publish_position();
  LogReceipt receipt();
  void clear();

  Engine& engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  const uint64_t session_;
  const std::span<std::byte> ring_;
  const uint64_t ring_tag_;
  std::string copy_;  // of the piece being applied; at most as long as the ring or a message
  LogApplier* applier_;
  uint64_t position_key_ = 0;
  ReplicaPosition published_position_{};  // what the primary's memory holds
  bool active_ = false;
  static constexpr size_t kMaxUnanswered = 32;
  uint64_t expected_ = 0, poll_until_ns_ = 0, poll_turn_ = 0;
  uint64_t last_message_ns_ = 0,
           frequent_messages_ns_ = 0;  // time of the last message; time of the last two in quick succession
  std::string fault_;                  // why the stream is invalid; empty: it is valid
  std::vector<uint64_t> unanswered_;   // calls without a receipt yet
  std::deque<std::pair<uint64_t, uint64_t>> undurable_;  // LSN of our log, offset of the primary's log
  uint64_t durable_offset_ = 0;
  std::vector<uint64_t>
      applied_visible_ns_;  // LogPiece::visible_ns of applied pieces that are not committed yet
  bool closed_ = false;

  mutable std::mutex mutex_;
  std::vector<Message> queue_;
  bool posted_ = false, begun_ = false;
  ReplicationReceiverCounters counters_;
};

}  // namespace verbena::kv
