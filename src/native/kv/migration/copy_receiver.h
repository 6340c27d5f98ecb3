// The target's end of a base copy. Pieces arrive by WRITE in windows of its memory, and a notice names the
// window. One thread checks the pieces, applies them in order, and replies to each notice when its piece is
// applied. Python only opens and closes it.
// Depends on the engine, LogApplier and a node of the transport; knows nothing of the phases of a slot move.
#pragma once

#include <array>
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
  // Called with each notice and its piece, on the receiver's thread, before anything is checked.
  using Observer = std::function<void(std::string_view notice, Window piece)>;

  // `applier` and the windows must live until close().
  CopyReceiver(Engine& engine, std::shared_ptr<transport::Node> node, std::vector<Window> windows,
               LogApplier& applier, Observer observer);
  ~CopyReceiver() { close(); }

  // On the node's thread, with its lock.
  void take(const transport::Request& request, const EnvelopeHeader& header, PieceNotice piece);
  // When it returns, nothing more is applied and waiting notices have been refused. The caller holds no lock.
  void close();

  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }  // bytes that have been applied
  std::string failure() const;                                               // empty: no failure

 private:
  struct PendingNotice {
    uint64_t session, call;
    EnvelopeHeader notice;
  };
  struct Arrival {
    PendingNotice notice_call;
    PieceNotice piece;
  };
  struct Piece {
    Window payload;
    std::vector<PendingNotice> notice_call;
  };

  // On the receiver's thread:
  void run();
  void process(const Arrival& arrival);
  bool is_next(uint32_t segment) const { return segment == next_ && failure_.empty(); }
  void apply(Window payload, StagedValues* staged);
  void answer(std::span<const PendingNotice> notice_call, const std::string& refusal);

  Engine& engine_;
  const std::shared_ptr<transport::Node> node_;
  const std::vector<Window> windows_;
  LogApplier& applier_;
  const Observer observer_;
  uint32_t next_ = 0;
  std::map<uint32_t, Piece> waiting_;  // pieces that wait for earlier ones
  std::atomic<uint64_t> taken_{0};

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
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

 private:
  std::map<CopyReceiver::Migration, std::shared_ptr<CopyReceiver>> receivers_;
};

}  // namespace verbena::kv
