#include "providers/iwarp/protocol/markers.h"

#include <algorithm>
#include <cstring>

#include "util/crc32c/crc32c.h"

namespace verbena::iwarp {
namespace {

constexpr size_t kBetween = kMarkerInterval - sizeof(MpaMarker);

}  // namespace

size_t MarkerInserter::marked_bytes(size_t plain) const {
  const size_t offset = position_ % kMarkerInterval;
  const size_t before_first = offset == 0 ? 0 : kMarkerInterval - offset;
  if (plain <= before_first) return plain;
  return plain + (plain - before_first + kBetween - 1) / kBetween * sizeof(MpaMarker);
}

void MarkerInserter::insert(std::span<const iovec> pieces, std::byte* out) {
  std::byte* at = out;
  uint64_t began = 0;
  bool has_begun = false;
  const auto add = [&](const void* bytes, size_t size) {
    std::memcpy(at, bytes, size);
    at += size;
    position_ += size;
  };
  const auto mark = [&] {
    if (position_ % kMarkerInterval != 0) return;
    const MpaMarker marker{0, static_cast<uint16_t>(has_begun ? position_ - began : 0)};
    add(&marker, sizeof marker);
  };
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (size_t left = piece.iov_len; left > 0;) {
      mark();
      if (!has_begun) began = position_;
      has_begun = true;
      const size_t n = std::min(left, kMarkerInterval - position_ % kMarkerInterval);
      add(from, n);
      from += n;
      left -= n;
    }
  }
  mark();
  const uint32_t sum = crc_enabled_ ? crc32c(0, out, static_cast<size_t>(at - out)) : 0;
  std::array<std::byte, kMpaCrcBytes> crc;
  for (size_t i = 0; i < crc.size(); ++i) crc[i] = static_cast<std::byte>(sum >> (8 * i));
  add(crc.data(), crc.size());
}

MarkerStripper::Event MarkerStripper::take(std::span<const std::byte>& bytes) {
  if (is_complete_) {
    is_complete_ = false;
    fpdu_.clear();
    crc_ = 0;
  }
  while (!bytes.empty()) {
    const size_t offset = position_ % kMarkerInterval;
    const bool in_marker = offset < sizeof(MpaMarker);
    const size_t n = in_marker ? std::min(sizeof(MpaMarker) - offset, bytes.size())
                               : std::min({wanted(), kMarkerInterval - offset, bytes.size()});
    if (in_marker) {
      take_marker(bytes.first(n));
    } else {
      take_run(bytes.first(n));
    }
    bytes = bytes.subspan(n);
    if (wanted() == 0) return finish();
  }
  return Event::more;
}

// The bytes that are missing of the FPDU or of its length field.
size_t MarkerStripper::wanted() const {
  if (fpdu_.size() < kMpaLengthBytes) return kMpaLengthBytes - fpdu_.size();
  const size_t ulpdu = std::to_integer<size_t>(fpdu_[0]) << 8 | std::to_integer<size_t>(fpdu_[1]);
  return kMpaLengthBytes + ulpdu + pad_bytes(ulpdu) + kMpaCrcBytes - fpdu_.size();
}

void MarkerStripper::take_marker(std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), marker_.begin() + position_ % kMarkerInterval);
  if (crc_enabled_) crc_ = crc32c(crc_, bytes.data(), bytes.size());
  position_ += bytes.size();
  if (position_ % kMarkerInterval != sizeof(MpaMarker)) return;
  MpaMarker marker;
  std::memcpy(&marker, marker_.data(), sizeof marker);
  const uint64_t distance = fpdu_.empty() ? 0 : position_ - sizeof marker - began_;
  if (marker.fpdu_pointer != distance) is_misplaced_ = true;
}

void MarkerStripper::take_run(std::span<const std::byte> bytes) {
  if (fpdu_.empty()) began_ = position_;
  fpdu_.insert(fpdu_.end(), bytes.begin(), bytes.end());
  position_ += bytes.size();
  if (!crc_enabled_ || fpdu_.size() <= kMpaLengthBytes) {
    if (crc_enabled_) crc_ = crc32c(crc_, bytes.data(), bytes.size());
    return;
  }
  // All but the CRC itself.
  const size_t left = wanted();
  const size_t of_crc = left < kMpaCrcBytes ? std::min(kMpaCrcBytes - left, bytes.size()) : 0;
  crc_ = crc32c(crc_, bytes.data(), bytes.size() - of_crc);
}

MarkerStripper::Event MarkerStripper::finish() {
  uint32_t received = 0;
  for (size_t i = 0; i < kMpaCrcBytes; ++i) {
    received |= std::to_integer<uint32_t>(fpdu_[fpdu_.size() - kMpaCrcBytes + i]) << (8 * i);
  }
  is_complete_ = true;
  if (crc_enabled_ && received != crc_) return Event::corrupt;
  return is_misplaced_ ? Event::misplaced : Event::fpdu;
}

}  // namespace verbena::iwarp
