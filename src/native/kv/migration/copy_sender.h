// The source's end of a base copy: fills pieces from the store, WRITEs each into a window of the target's
// memory and announces it, as many at a time as there are windows. Where a WRITE is a copy, long values go
// straight from the store. What has not been acknowledged is kept: if the link breaks, it goes again, perhaps
// by another session.
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
  uint64_t acknowledged = 0;  // bytes of payloads that the target has applied,
  uint64_t pieces = 0;        // in so many pieces
};

class CopySender {
 public:
  using Hold = Keyspace::Hold;
  // True: that was the last one. Sets the hold, if it holds nothing. Throws.
  using Fill = std::function<bool(CopyPiece&)>;
  // Shown each piece and each notice before they leave, by which wire.
  using Observer = std::function<void(std::string_view wire, std::string_view data)>;

  // `header`: what all envelopes have in common. `regions`: the windows, each of at least `piece_bytes`.
  CopySender(const EnvelopeHeader& header, std::vector<uint64_t> regions, uint32_t piece_bytes, Fill fill,
             std::shared_ptr<Hold> hold, Observer observer);
  ~CopySender();

  // Until all of it is acknowledged; otherwise says why not, and may be run again. On one link: WRITEs are
  // not repeated on the next, as their notices would be. `link`: on this one, else not at all; 0: on
  // whichever there is. Throws what `fill` throws.
  transport::BulkResult run(transport::Node& node, transport::Session& session, uint64_t link,
                            const std::function<bool()>& keep_going);

  bool is_complete() const { return last_ && oldest_ == next_; }
  // An answer that refuses a piece, as it came; empty: there was none.
  const std::string& refusal() const { return refusal_; }
  CopySenderCounters counters() const { return {acknowledged_.load(), pieces_acknowledged_.load()}; }

 private:
  class Run;
  struct Piece {
    uint32_t bytes() const { return static_cast<uint32_t>(sizeof(EnvelopeHeader) + copy.used); }
    // Its values that are not in it, then what is between them.
    size_t parts() const { return 2 * copy.holes.size() + 1; }

    std::byte* data = nullptr;
    CopyPiece copy;  // the payload
    EnvelopeHeader header;
    bool sealed = false;
    size_t part = 0;       // which are written on this link,
    uint32_t written = 0;  // and so much of the next one
    std::string notice;
    transport::Call* call = nullptr;  // the notice's
  };
  Piece& piece(uint32_t segment) { return pieces_[segment % pieces_.size()]; }
  void fill_next();
  void seal(Piece& piece);
  void plug(Piece& piece);  // all of it is in its own memory then
  void let_go();            // of values that no piece needs any more

  const EnvelopeHeader header_;
  const std::vector<uint64_t> regions_;
  const uint32_t piece_bytes_;
  const Fill fill_;
  const std::shared_ptr<Hold> hold_;
  const Observer observer_;
  std::byte* memory_;
  std::vector<Piece> pieces_;
  uint32_t oldest_ = 0, next_ = 0;  // segments that are not acknowledged
  uint64_t offset_ = 0;
  bool last_ = false;  // has been filled
  std::string refusal_;
  std::atomic<uint64_t> acknowledged_{0}, pieces_acknowledged_{0};
};

}  // namespace verbena::kv
