// FpduReader: takes FPDUs from a byte stream. It states where the next bytes go, so that the receiving system
// call itself writes payload to its destination. No socket. Depends on util/ and the layouts only.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "providers/iwarp/protocol/ddp_layout.h"
#include "providers/iwarp/protocol/mpa_layout.h"

namespace verbena::iwarp {

constexpr size_t kMaxPieces = 16;
constexpr size_t kMaxRoom = 64;  // iovecs for one read

// With a CRC, the end of a payload is held back until the CRC has matched. Programs often watch the last
// bytes of a buffer: they must not see them earlier, and must not change them while the checksum is computed.
constexpr size_t kHeldBack = 64;

// Walks over several pieces of memory as if they were one.
class Cursor {
 public:
  void reset(std::span<const iovec> pieces) {
    count_ = std::min(pieces.size(), pieces_.size());
    std::copy_n(pieces.begin(), count_, pieces_.begin());
    index_ = offset_ = 0;
  }
  // Passes the next `bytes` to `take(std::byte* at, size_t size)`, piece by piece, until it returns false.
  // Returns the number of bytes that were passed.
  template <typename Take>
  size_t walk(size_t bytes, Take&& take) {
    size_t left = bytes;
    while (left > 0 && index_ < count_) {
      const iovec& piece = pieces_[index_];
      const size_t n = std::min(piece.iov_len - offset_, left);
      if (n > 0 && !take(static_cast<std::byte*>(piece.iov_base) + offset_, n)) break;
      left -= n;
      offset_ += n;
      if (offset_ == piece.iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
    return bytes - left;
  }
  void skip(size_t bytes) {
    walk(bytes, [](std::byte*, size_t) { return true; });
  }

 private:
  std::array<iovec, kMaxPieces> pieces_{};
  size_t count_ = 0, index_ = 0, offset_ = 0;
};

class FpduReader {
 public:
  enum class Event : uint8_t {
    more,       // read more bytes to where room() points
    header,     // a segment begins: call place(), keep() or discard()
    end,        // the segment is complete, and its CRC matched
    corrupt,    // the CRC did not match; the stream is unusable
    malformed,  // the length is too short for a header; the stream is unusable
    empty,      // an FPDU without content: an RTR message (RFC 6581)
  };

  explicit FpduReader(bool crc) : crc_enabled_(crc) {}

  // Where the next bytes of the stream go, for one readv(2); room for at least one byte. In a run that covers
  // several segments: payload at its destination, headers and trailers in the stage.
  size_t room(std::span<iovec> out);
  void arrived(size_t bytes);
  Event next();

  // The current segment, from Event::header on.
  std::span<const std::byte> header() const { return {header_.data(), header_size_}; }
  size_t payload_bytes() const { return ulpdu_length_ - header_size_; }

  // Sets the destination of the payload: `pieces` cover the payload and, at the first segment of a run, the
  // `beyond` payload bytes after it. They must stay valid until Event::end, or until discard().
  void place(std::span<const iovec> pieces, uint64_t beyond = 0);
  void continue_run();  // continues a run: behind the previous segment, which was at least as long
  bool in_run() const { return in_run_; }
  void keep() { mode_ = Mode::keep; }  // buffers up to kMaxControlBytes; kept() returns them at Event::end
  void discard() {
    mode_ = Mode::discard;
    in_run_ = false;
  }
  std::span<const std::byte> kept() const { return {kept_.data(), kept_size_}; }
  bool is_placing() const { return state_ == State::payload && mode_ == Mode::place; }
  bool in_segment() const { return state_ != State::head || begin_ != end_; }
  uint64_t segments() const { return segments_; }  // number of complete segments

 private:
  enum class State : uint8_t { head, decide, payload };
  enum class Mode : uint8_t { place, keep, discard };
  // Short segments pass through the stage. It grows while reads fill it, so that one system call takes many.
  static constexpr size_t kFirstStageBytes = 4096, kMaxStageBytes = 64 * 1024;
  static constexpr size_t kShortBytes = 8192;
  static constexpr size_t kReadAhead = 96;  // for the next header, when the payload does not go to the stage
  static constexpr size_t kRunBytes = 512 * 1024;  // for one read

  size_t buffered() const { return end_ - begin_; }
  void prepare_stage();
  size_t held_back() const { return crc_enabled_ ? kHeldBack : 0; }
  size_t trailer_bytes() const { return pad_bytes(ulpdu_length_) + kMpaCrcBytes; }
  size_t gap_bytes(size_t payload) const {
    return held_back() + pad_bytes(header_size_ + payload) + kMpaCrcBytes + kMpaLengthBytes + header_size_;
  }
  size_t plan_run(Cursor at, std::span<iovec> out, size_t count);
  void take_direct(size_t bytes);
  bool take_placed_ahead();
  Event step();
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
  size_t direct_ = 0;        // bytes of the last room() that bypass the stage
  size_t ahead_ = 0;         // bytes for the stage behind them
  size_t placed_ahead_ = 0;  // bytes of a run that lie at their destination but were not processed yet
  size_t planned_ = 0;       // segments beyond the current one that the last room() covered
  bool in_run_ = false;
  uint64_t beyond_ = 0;         // payload of the run behind the current segment
  size_t begin_ = 0, end_ = 0;  // the used part of the stage
  uint64_t segments_ = 0;
  Cursor place_;
  std::array<std::byte, sizeof(UntaggedHeader)> header_{};
  std::array<std::byte, kMaxControlBytes> kept_{};
  size_t stage_bytes_ = kFirstStageBytes;
  std::unique_ptr<std::byte[]> stage_ = std::make_unique_for_overwrite<std::byte[]>(kFirstStageBytes);
};

}  // namespace verbena::iwarp
