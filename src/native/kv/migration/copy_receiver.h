// The target's end of a base copy. Pieces arrive by WRITE in windows of its memory, and a notice names the
// window. The windows are lent to one session of the source; notices of other sessions are refused. One
// thread checks the pieces, applies them in order, and replies to each notice when its piece is applied.
// Python only opens and closes it. Depends on the engine, LogApplier and a node of the transport; knows
// nothing of the phases of a slot move.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "kv/journal/log_applier.h"
#include "kv/migration/envelope.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"

namespace verbena::kv {

class CopyReceiver {
 public:
  using Window = std::span<const std::byte>;
  using Migration = std::array<uint8_t, 16>;
  using MemberId = std::array<uint8_t, 20>;
  // Called with each notice and its piece, on the receiver's thread, before anything is checked.
  using Observer = std::function<void(std::string_view notice, Window piece)>;

  // `source`: the member that gives the slots. `applier` must live until close().
  CopyReceiver(Engine& engine, std::shared_ptr<transport::Node> node, const MemberId& source,
               LogApplier& applier, Observer observer);
  ~CopyReceiver() { close(); }

  // Lends windows to a session, which must be the source's, in place of those lent before: their pieces that
  // have been announced are still applied. The memory must live until close(). Throws unless the windows are
  // as many and as long as the first ones.
  void lend(uint64_t session, std::vector<Window> windows);
  // Refuses further notices until lend().
  void withdraw();
  // On the node's thread, with its lock. False: the session may not announce pieces of this move.
  bool take(const transport::Request& request, const EnvelopeHeader& header, PieceNotice piece);
  // When it returns, nothing more is applied and waiting notices have been refused. The caller holds no lock.
  void close();

  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }  // bytes that have been applied
  std::string failure() const;                                               // empty: no failure

 private:
  struct PendingNotice {
    uint64_t session, call;
    EnvelopeHeader header;
  };
  struct Arrival {
    PendingNotice notice;
    PieceNotice payload;
    Window piece;
  };
  // The payload of a piece, copied from its window before anything of it is used: the source can write to the
  // window at any time.
  struct Piece {
    std::unique_ptr<char[]> bytes;
    size_t length = 0;
    std::vector<PendingNotice> notices;
  };

  // On the receiver's thread:
  void run();
  void process(const Arrival& arrival);
  bool is_next(uint32_t segment) const { return segment == next_ && failure_.empty(); }
  std::unique_ptr<char[]> take_buffer();
  size_t window_count() const;
  size_t longest_window() const;
  void apply(std::string_view payload, StagedValues* staged);
  void fail(const std::exception& error);
  void answer(std::span<const PendingNotice> notices, const std::string& refusal);

  Engine& engine_;
  const std::shared_ptr<transport::Node> node_;
  const MemberId source_;
  LogApplier& applier_;
  const Observer observer_;
  uint32_t next_ = 0;
  std::map<uint32_t, Piece> waiting_;             // pieces that wait for earlier ones; at most one per window
  std::vector<std::unique_ptr<char[]>> buffers_;  // unused; each as long as the longest window
  std::atomic<uint64_t> taken_{0};

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  uint64_t session_ = 0;         // the windows are lent to it; 0: to none
  std::vector<Window> windows_;  // their number and length never change
  std::vector<Arrival> arrivals_;
  std::string failure_;
  bool closing_ = false;
  std::thread thread_;
};

// All copy receivers of a node, by the migration that the notices name.
class CopyReceivers : public transport::Handler {
 public:
  // Registers it as the handler of the node's notices. The node keeps it for its lifetime.
  static std::shared_ptr<CopyReceivers> make(transport::Node& node);
  void handle(const transport::Request& request) override;
  // With the node's lock:
  void add(const CopyReceiver::Migration& migration, std::shared_ptr<CopyReceiver> receiver);
  void remove(const CopyReceiver::Migration& migration, const CopyReceiver& receiver);

  // The number of notices that were refused because of the session that sent them. Any thread may call it.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  std::map<CopyReceiver::Migration, std::shared_ptr<CopyReceiver>> receivers_;
  std::atomic<uint64_t> refused_{0};
};

}  // namespace verbena::kv
