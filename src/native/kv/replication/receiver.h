// A replica's end: takes pieces of the primary's log, applies them on the engine's loop, and says how far it
// is when asked. The ring is where the primary WRITEs to; while it does, the loop looks for more in every
// turn and at least some thousand times a second, so that nobody has to wake it.
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
  uint64_t pieces = 0, bytes = 0, written = 0, damaged = 0, heard_ns = 0;
  bool complete = false, begun = false;
  // From the moment when the primary's clients could know of a piece's first record until this node's can, by
  // both clocks.
  RecentTimes lags;
  std::string error;
};

class ReplicationReceiver : public std::enable_shared_from_this<ReplicationReceiver> {
 public:
  // Takes the pieces of one session. `applier` must live until close().
  static std::shared_ptr<ReplicationReceiver> make(Engine& engine, EventLoop& loop,
                                                   std::shared_ptr<transport::Node> node, uint64_t session,
                                                   std::span<std::byte> ring, LogApplier& applier);
  // The primary has said where it begins: with a copy of everything, so that what is here goes, or behind
  // `offset`. Pieces that came before this wait for it. It lends memory for a LogPlace under `place_key`, if
  // that is not 0. With the engine's lock.
  void begin(bool full, uint64_t offset, uint64_t place_key);
  void close();  // with the engine's lock
  ReplicationReceiverCounters counters() const;
  uint64_t mark() const { return mark_; }  // for the primary: see LogPiece

 private:
  class Door;
  ReplicationReceiver(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                      uint64_t session, std::span<std::byte> ring, LogApplier& applier)
      : engine_(engine),
        loop_(loop),
        node_(std::move(node)),
        session_(session),
        ring_(ring.first(usable_ring(ring.size()))),
        mark_(random_value<uint64_t>()),
        applier_(&applier) {}
  struct Message {
    LogMessage header;
    uint64_t call;
    std::string piece;
  };
  // How long after a look the next one comes, if there are clients and if not, and how long it may take.
  static constexpr uint64_t kHurriedLookNs = 200'000, kLookNs = 500'000, kBudgetNs = 2'000'000;
  // For so long nobody has asked this node for anything: then it need not hurry.
  static constexpr uint64_t kQuietNs = 1'000'000'000;
  void take(const transport::Request& request);  // on the node's thread
  void post();
  // On the loop's thread, with the engine's lock:
  void work();
  uint64_t look(uint64_t now);                            // when to look again
  bool look_until(uint64_t deadline);                     // false: it is over, and there may be more
  bool take_piece(std::string_view bytes, bool written);  // false: it is not the one that comes next
  void settle();
  void tell_place();
  LogReceipt receipt();
  void clear();

  Engine& engine_;
  EventLoop& loop_;
  const std::shared_ptr<transport::Node> node_;
  const uint64_t session_;
  const std::span<std::byte> ring_;
  const uint64_t mark_;
  LogApplier* applier_;
  uint64_t place_key_ = 0;
  LogPlace told_place_{};  // to the primary
  bool hurries_ = false;
  static constexpr size_t kMostOwed = 32;
  uint64_t expected_ = 0, awake_until_ = 0, turn_ = 0;
  uint64_t woken_ns_ = 0, pressed_ns_ = 0;  // by the last message; when they came close together last
  std::string why_;                         // the stream makes no sense
  std::vector<uint64_t> owed_;              // calls that have no receipt yet
  std::deque<std::pair<uint64_t, uint64_t>> undurable_;  // our log's LSN, the primary's offset
  uint64_t durable_offset_ = 0;
  std::vector<uint64_t> told_;  // LogPiece::told_ns of what is applied, but cannot be seen yet
  bool closed_ = false;

  mutable std::mutex mutex_;
  std::vector<Message> queue_;
  bool posted_ = false, begun_ = false;
  ReplicationReceiverCounters counters_;
};

}  // namespace verbena::kv
