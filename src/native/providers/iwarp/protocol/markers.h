// MPA markers (RFC 5044, section 4.3): a word at every 512th byte of the stream that gives the distance to
// the start of the current FPDU. Inserted for a peer that requests them, removed where we requested them.
// Both copy every byte; a stream without markers uses neither. No socket.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "providers/iwarp/protocol/mpa_layout.h"

namespace verbena::iwarp {

class MarkerInserter {
 public:
  explicit MarkerInserter(bool crc) : crc_enabled_(crc) {}

  // The length of an FPDU of `plain` bytes with its markers, at the current position of the stream.
  size_t marked_bytes(size_t plain) const;
  // Writes the stream's next FPDU to `out`. `pieces` hold the FPDU without its CRC, which covers the markers
  // as well.
  void insert(std::span<const iovec> pieces, std::byte* out);

 private:
  const bool crc_enabled_;
  uint64_t position_ = 0;  // in the stream, markers included; always whole words
};

class MarkerStripper {
 public:
  enum class Event : uint8_t {
    more,
    fpdu,       // fpdu() is complete and its CRC matched
    corrupt,    // the CRC did not match; the stream is unusable
    misplaced,  // a marker and the length field disagree on the start of an FPDU; the stream is unusable
  };

  explicit MarkerStripper(bool crc) : crc_enabled_(crc) {}

  // Consumes bytes from the front, at most to the end of an FPDU.
  Event take(std::span<const std::byte>& bytes);
  // The FPDU without markers, with the CRC that covered them. Valid until the next take().
  std::span<const std::byte> fpdu() const { return fpdu_; }
  bool in_fpdu() const { return !is_complete_ && !fpdu_.empty(); }

 private:
  size_t wanted() const;
  void take_marker(std::span<const std::byte> bytes);
  void take_run(std::span<const std::byte> bytes);
  Event finish();

  const bool crc_enabled_;
  bool is_complete_ = false, is_misplaced_ = false;
  uint32_t crc_ = 0;
  uint64_t position_ = 0;  // in the stream, markers included
  uint64_t began_ = 0;     // position of the current FPDU's length field
  std::array<std::byte, sizeof(MpaMarker)> marker_{};
  std::vector<std::byte> fpdu_;
};

}  // namespace verbena::iwarp
