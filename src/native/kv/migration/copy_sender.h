// The source's end of a base copy: fills pieces from the store, WRITEs each into a window of the target's
// memory and announces it, with as many pieces in flight as there are windows. Over shm, where a WRITE is a
// memcpy, long values are written directly from the store. Unacknowledged pieces are kept: if the link
// breaks, they are sent again, possibly over another session.
// Depends on the store's memory and a session; knows nothing of the phases of a slot move.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kv/migration/copy_piece.h"
#include "kv/migration/copy_receiver.h"
#include "kv/migration/envelope.h"
#include "kv/store/keyspace.h"
#include "transport/session/writer.h"

namespace verbena::kv {

struct CopySenderCounters {
  uint64_t acknowledged = 0;  // payload bytes that the target has applied
  uint64_t pieces = 0;        // number of those pieces
};

class CopySender {
 public:
  using Hold = Keyspace::Hold;
  // Fills a piece; true: it is the last one. If the hold is kNothing, it is set first, so that the store
  // keeps the values that the piece refers to. May throw.
  using Fill = std::function<bool(CopyPiece&)>;
  // Called with each piece and each notice before it is sent, and with the wire.
  using Observer = std::function<void(std::string_view wire, std::string_view data)>;

  // `header`: the fields that all envelopes share. `windows`: their number.
  CopySender(const EnvelopeHeader& header, size_t windows, uint32_t piece_bytes, Fill fill,
             std::shared_ptr<Hold> hold, Observer observer);
  ~CopySender();

  // Runs until everything is acknowledged, or returns the reason why it stopped; it may then be called again.
  // A run uses one link only: after a failover the session would repeat the notices, but not the WRITEs
  // before them. `link`: the link to use; 0: the current one. `regions`: the windows, lent to this session,
  // each of at least `piece_bytes`. Throws what `fill` throws.
  transport::BulkResult run(transport::Node& node, transport::Session& session, uint64_t link,
                            std::vector<uint64_t> regions, const std::function<bool()>& keep_going);

  size_t windows() const { return pieces_.size(); }

  bool is_complete() const { return last_ && oldest_ == next_; }
  // The reply that refused a piece, unchanged; empty: none.
  const std::string& refusal() const { return refusal_; }
  CopySenderCounters counters() const { return {acknowledged_.load(), pieces_acknowledged_.load()}; }

 private:
  class Run;
  struct Piece {
    uint32_t bytes() const { return static_cast<uint32_t>(sizeof(EnvelopeHeader) + copy.used); }
    // The number of separate WRITE ranges: the values in holes, then the ranges between them.
    size_t parts() const { return 2 * copy.holes.size() + 1; }

    std::byte* data = nullptr;
    CopyPiece copy;  // of the payload
    EnvelopeHeader header;
    bool sealed = false;
    size_t part = 0;       // parts that are written on this link
    uint32_t written = 0;  // bytes of the next part that are written
    std::string notice;
    transport::Operation* call = nullptr;  // of the notice
  };
  Piece& piece(uint32_t segment) { return pieces_[segment % pieces_.size()]; }
  void fill_next();
  void seal(Piece& piece);
  void fill_holes(Piece& piece);  // copies the values into the piece
  void release_values();          // stops protecting values that no piece refers to

  const EnvelopeHeader header_;
  std::vector<uint64_t> regions_;
  const uint32_t piece_bytes_;
  const Fill fill_;
  const std::shared_ptr<Hold> hold_;
  const Observer observer_;
  std::byte* memory_;
  std::vector<Piece> pieces_;
  uint32_t oldest_ = 0, next_ = 0;  // segments from oldest_ up to next_ are not acknowledged
  uint64_t offset_ = 0;
  bool last_ = false;  // the last piece has been filled
  std::string refusal_;
  std::atomic<uint64_t> acknowledged_{0}, pieces_acknowledged_{0};
};

}  // namespace verbena::kv
