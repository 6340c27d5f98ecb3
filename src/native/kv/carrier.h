// The source's end of a base copy: fills pieces from the store, WRITEs each into a window of the target's
// memory and announces it, as many at a time as there are windows. What has not been acknowledged is kept: if
// the link breaks, it goes again, perhaps by another session.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "kv/envelope.h"
#include "kv/landing.h"
#include "transport/writer.h"

namespace verbena::kv {

struct CarrierFigures {
  uint64_t acknowledged = 0;  // bytes of payloads that the target has applied,
  uint64_t pieces = 0;        // in so many pieces
};

class Carrier {
 public:
  struct Filled {
    size_t bytes;
    uint32_t sum;
    bool last;
  };
  using Fill = std::function<Filled(std::span<char>)>;  // throws
  // Shown each piece and each notice before they leave, by which wire.
  using Tap = std::function<void(std::string_view wire, std::string_view data)>;

  // `header`: what all envelopes have in common. `regions`: the windows, each of at least `piece_bytes`.
  Carrier(const EnvelopeHeader& header, std::vector<uint64_t> regions, uint32_t piece_bytes, Fill fill,
          Tap tap);
  ~Carrier();

  // Until all of it is acknowledged; otherwise says why not, and may be run again. On one link: WRITEs are
  // not repeated on the next, as their notices would be. `link`: on this one, else not at all; 0: on
  // whichever there is. Throws what `fill` throws.
  transport::BulkResult run(transport::Node& node, transport::Session& session, uint64_t link,
                            const std::function<bool()>& keep_going);

  bool is_complete() const { return last_ && oldest_ == next_; }
  // An answer that refuses a piece, as it came; empty: there was none.
  const std::string& refusal() const { return refusal_; }
  CarrierFigures figures() const { return {acknowledged_.load(), pieces_acknowledged_.load()}; }

 private:
  class Run;
  struct Piece {
    std::byte* data = nullptr;
    uint32_t bytes = 0;
    uint32_t written = 0;  // of those, on this link
    std::string notice;
    transport::Call* call = nullptr;  // the notice's
  };
  Piece& piece(uint32_t segment) { return pieces_[segment % pieces_.size()]; }
  void fill_next();

  const EnvelopeHeader header_;
  const std::vector<uint64_t> regions_;
  const uint32_t piece_bytes_;
  const Fill fill_;
  const Tap tap_;
  std::byte* memory_;
  std::vector<Piece> pieces_;
  uint32_t oldest_ = 0, next_ = 0;  // segments that are not acknowledged
  uint64_t offset_ = 0;
  bool last_ = false;  // has been filled
  std::string refusal_;
  std::atomic<uint64_t> acknowledged_{0}, pieces_acknowledged_{0};
};

}  // namespace verbena::kv
