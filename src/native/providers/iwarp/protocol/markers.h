// Markers (RFC 5044, section 4.3): a word at every 512th byte of the stream says how far back the current
// FPDU began. Put in for a peer that asks for them, taken out where we have asked. Both copy every byte, so
// neither is on the way of a stream without markers. Pure: no socket.
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

  // How long an FPDU of `plain` bytes becomes at this place of the stream.
  size_t marked_bytes(size_t plain) const;
  // Writes the stream's next FPDU to `out`. `pieces` are all of it but the CRC, which covers the markers,
  // too.
  void insert(std::span<const iovec> pieces, std::byte* out);

 private:
  const bool crc_enabled_;
  uint64_t position_ = 0;  // in the stream, markers included; always whole words
};

class MarkerStripper {
 public:
  enum class Event : uint8_t {
    more,
    fpdu,       // fpdu() has one, whole and with a good CRC
    corrupt,    // the CRC did not match; the stream is of no use any more
    misplaced,  // a marker and the length field do not agree on where an FPDU begins; likewise
  };

  explicit MarkerStripper(bool crc) : crc_enabled_(crc) {}

  // Takes bytes off the front, up to the end of an FPDU at most.
  Event take(std::span<const std::byte>& bytes);
  // Without markers, and with the CRC that covered them; until take() is called again.
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
  uint64_t began_ = 0;     // where the length field of the current FPDU is
  std::array<std::byte, sizeof(MpaMarker)> marker_{};
  std::vector<std::byte> fpdu_;
};

}  // namespace verbena::iwarp
