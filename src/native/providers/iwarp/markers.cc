#include "providers/iwarp/markers.h"

#include <algorithm>
#include <cstring>

#include "providers/iwarp/mpa_layout.h"
#include "util/crc32c.h"

namespace verbena::iwarp {
namespace {

void append_crc(std::vector<std::byte>& out, uint32_t crc) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(crc >> (8 * i)));
}

size_t ulpdu_length(const std::vector<std::byte>& stripped) {
  return std::to_integer<size_t>(stripped[0]) << 8 | std::to_integer<size_t>(stripped[1]);
}

size_t fpdu_bytes(size_t ulpdu) { return kMpaLengthBytes + ulpdu + pad_bytes(ulpdu) + kMpaCrcBytes; }

}  // namespace

bool MarkerStripper::expects_marker() const { return position_ % kMarkerInterval < sizeof(MpaMarker); }

MarkerStripper::Verdict MarkerStripper::take(std::span<const std::byte> bytes,
                                             std::vector<std::byte>& plain) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    raw_.push_back(bytes[i]);
    if (expects_marker()) {
      marker_.push_back(bytes[i]);
      ++position_;
      if (marker_.size() < sizeof(MpaMarker)) continue;
      MpaMarker marker;
      std::memcpy(&marker, marker_.data(), sizeof marker);
      marker_.clear();
      const uint64_t at = position_ - sizeof(MpaMarker);
      const uint64_t distance = stripped_.empty() ? 0 : at - fpdu_began_;
      if (marker.fpdu_pointer != distance) return Verdict::misplaced;
      continue;
    }
    if (stripped_.empty()) fpdu_began_ = position_;
    stripped_.push_back(bytes[i]);
    ++position_;
    if (stripped_.size() < kMpaLengthBytes) continue;
    if (stripped_.size() < fpdu_bytes(ulpdu_length(stripped_))) continue;
    if (const Verdict verdict = finish(plain); verdict != Verdict::fine) return verdict;
  }
  return Verdict::fine;
}

MarkerStripper::Verdict MarkerStripper::finish(std::vector<std::byte>& plain) {
  uint32_t received = 0, expected = 0;
  for (size_t i = 0; i < kMpaCrcBytes; ++i) {
    received |= std::to_integer<uint32_t>(stripped_[stripped_.size() - kMpaCrcBytes + i]) << (8 * i);
  }
  expected = crc32c(0, raw_.data(), raw_.size() - kMpaCrcBytes);
  if (crc_enabled_ && received != expected) return Verdict::corrupt;
  stripped_.erase(stripped_.end() - kMpaCrcBytes, stripped_.end());
  const uint32_t anew = crc_enabled_ ? crc32c(0, stripped_.data(), stripped_.size()) : 0;
  append_crc(stripped_, anew);
  plain.insert(plain.end(), stripped_.begin(), stripped_.end());
  stripped_.clear();
  raw_.clear();
  return Verdict::fine;
}

}  // namespace verbena::iwarp
