// Markers taken out of a stream: a peer that was asked for them (or sends them unasked) is read through this,
// and what comes out are plain FPDUs. Never on the fast path: we do not ask for markers, nor send any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::iwarp {

class MarkerStripper {
 public:
  enum class Verdict : uint8_t { fine, corrupt, misplaced };

  explicit MarkerStripper(bool crc) : crc_enabled_(crc) {}

  // Takes bytes as they come; complete FPDUs are appended to `plain`, their CRC made anew without markers.
  Verdict take(std::span<const std::byte> bytes, std::vector<std::byte>& plain);

 private:
  bool expects_marker() const;
  Verdict finish(std::vector<std::byte>& plain);

  const bool crc_enabled_;
  uint64_t position_ = 0;            // in the stream, markers included
  uint64_t fpdu_began_ = 0;          // where the length field of the current FPDU is
  std::vector<std::byte> raw_;       // the current FPDU with markers, for the CRC
  std::vector<std::byte> stripped_;  // and without
  std::vector<std::byte> marker_;    // one that has come in part
};

}  // namespace verbena::iwarp
