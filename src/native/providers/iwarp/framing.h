// FPDUs out of a byte stream: tells where the next bytes go, so that payload lands in its place by the
// receiving system call itself. Pure: no socket, no allocation. May depend on util/ and the layouts only.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "providers/iwarp/ddp_layout.h"
#include "providers/iwarp/mpa_layout.h"

namespace verbena::iwarp {

constexpr size_t kMaxPieces = 16;

// With a CRC, the end of a payload is held back until the CRC has matched: who watches the last bytes of a
// buffer, as programs do, must not see them before, and must not change them while they are being summed.
constexpr size_t kHeldBack = 64;

class FpduReader {
 public:
  enum class Event : uint8_t {
    more,       // read: room() says where to
    header,     // a segment begins: call place(), keep() or discard()
    end,        // the segment is complete, and its CRC matched
    corrupt,    // the CRC did not match; the stream is of no use any more
    malformed,  // the length is too short for a header; likewise
    empty,      // an FPDU of nothing: a peer's way to say that it is ready
  };

  explicit FpduReader(bool crc) : crc_enabled_(crc) {}

  // Where the next bytes of the stream go, for one readv(2). At least one byte fits.
  size_t room(std::span<iovec> out);
  void arrived(size_t bytes);
  Event next();

  // Of the segment under way, from Event::header on.
  std::span<const std::byte> header() const { return {header_.data(), header_size_}; }
  size_t payload_bytes() const { return ulpdu_length_ - header_size_; }

  // `pieces` add up to the payload. They must stay valid, or be taken back by discard().
  void place(std::span<const iovec> pieces);
  void keep() { mode_ = Mode::keep; }  // up to kMaxControlBytes; kept() has them at Event::end
  void discard() { mode_ = Mode::discard; }
  std::span<const std::byte> kept() const { return {kept_.data(), kept_size_}; }
  bool is_placing() const { return state_ == State::payload && mode_ == Mode::place; }
  bool in_segment() const { return state_ != State::head || begin_ != end_; }
  uint64_t segments() const { return segments_; }  // complete ones so far

 private:
  enum class State : uint8_t { head, decide, payload };
  enum class Mode : uint8_t { place, keep, discard };
  static constexpr size_t kStageBytes = 8192;
  static constexpr size_t kReadAhead = 96;  // the next header, when the payload goes elsewhere

  size_t buffered() const { return end_ - begin_; }
  size_t trailer_bytes() const { return pad_bytes(ulpdu_length_) + kMpaCrcBytes; }
  void sum(const std::byte* bytes, size_t size);
  void put(const std::byte* bytes, size_t size);
  Event begin_segment();
  Event take_empty();
  Event go_on();

  const bool crc_enabled_;
  State state_ = State::head;
  Mode mode_ = Mode::discard;
  uint32_t crc_ = 0;
  size_t ulpdu_length_ = 0, header_size_ = 0, payload_left_ = 0, kept_size_ = 0;
  size_t direct_ = 0;  // bytes of the last room() that bypass the stage
  size_t piece_ = 0, piece_offset_ = 0, piece_count_ = 0;
  size_t begin_ = 0, end_ = 0;  // of what the stage holds
  uint64_t segments_ = 0;
  std::array<iovec, kMaxPieces> pieces_{};
  std::array<std::byte, sizeof(UntaggedHeader)> header_{};
  std::array<std::byte, kMaxControlBytes> kept_{};
  std::array<std::byte, kStageBytes> stage_;
};

}  // namespace verbena::iwarp
