// CRC32C by folding, with carry-less multiplication in registers of 512 bits, or of 256 where there are no
// longer ones: the first several times as fast as the CRC instruction, both in one pass with a copy. For
// crc32c.cc only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::crc32c_fold {

constexpr size_t kLeast = 256;  // bytes, below which it does not pay

bool is_here();  // whether this processor can do it

// Sums a multiple of 64 bytes, at least kLeast, and copies them to `to` unless that is nullptr; stream()
// copies past the cache, and wants `to` aligned to 64 bytes. `state` is the CRC without its final inversion.
uint32_t sum(uint32_t state, void* to, const void* from, size_t size);
uint32_t stream(uint32_t state, void* to, const void* from, size_t size);

}  // namespace verbena::crc32c_fold
