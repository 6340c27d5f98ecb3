// Copies between a contiguous buffer and a scatter/gather list, from any offset in the concatenation of its
// pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "util/crc32c/crc32c.h"
#include "verbs/types.h"

namespace verbena::soft {

// memcpy without a function call for the sizes that fit into a message slot.
inline void copy_bytes(std::byte* to, const std::byte* from, uint64_t length) {
  constexpr uint64_t kUnit = 16, kShort = 192;
  if (length < kUnit || length > kShort) {
    std::memcpy(to, from, length);
    return;
  }
  for (uint64_t at = 0; at + kUnit < length; at += kUnit) std::memcpy(to + at, from + at, kUnit);
  std::memcpy(to + length - kUnit, from + length - kUnit, kUnit);
}

inline uint64_t total_length(std::span<const Sge> pieces) {
  uint64_t total = 0;
  for (const Sge& piece : pieces) total += piece.length;
  return total;
}

// Calls move(address, position, length) for each contiguous part of the range [offset, offset + length) of
// the pieces. `position`: where the part begins, counted from `offset`.
template <typename Move>
void for_each_run(std::span<const Sge> pieces, uint64_t offset, uint64_t length, Move move) {
  uint64_t done = 0;
  for (const Sge& piece : pieces) {
    if (done == length) return;
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const uint64_t n = std::min(piece.length - offset, length - done);
    move(reinterpret_cast<std::byte*>(piece.addr + offset), done, n);
    done += n;
    offset = 0;
  }
}

inline void gather(std::span<const Sge> pieces, uint64_t offset, std::byte* out, uint64_t length) {
  for_each_run(pieces, offset, length,
               [out](const std::byte* from, uint64_t at, uint64_t n) { copy_bytes(out + at, from, n); });
}

// gather() of long data; returns its CRC32C.
inline uint32_t gather_summed(std::span<const Sge> pieces, std::byte* out, uint64_t length) {
  uint32_t crc = 0;
  for_each_run(pieces, 0, length, [&](const std::byte* from, uint64_t at, uint64_t n) {
    constexpr uint64_t kLong = 128 * 1024;
    crc = n < kLong ? copy_crc32c(crc, out + at, from, n) : stream_crc32c(crc, out + at, from, n);
  });
  return crc;
}

inline void scatter(std::span<const Sge> pieces, uint64_t offset, const std::byte* in, uint64_t length) {
  for_each_run(pieces, offset, length,
               [in](std::byte* to, uint64_t at, uint64_t n) { copy_bytes(to, in + at, n); });
}

// scatter() of long data; returns its CRC32C. The data stays in the cache, because the program reads it next.
inline uint32_t scatter_summed(std::span<const Sge> pieces, const std::byte* in, uint64_t length) {
  uint32_t crc = 0;
  for_each_run(pieces, 0, length,
               [&](std::byte* to, uint64_t at, uint64_t n) { crc = copy_crc32c(crc, to, in + at, n); });
  return crc;
}

}  // namespace verbena::soft
