// CRC32C by folding: carry-less multiplication in 512-bit registers, or 256-bit ones where the CPU has no
// wider. With 512 bits it is several times as fast as the CRC instruction; either can copy in the same pass.
// Included by crc32c.cc only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::crc32c_fold {

constexpr size_t kLeast = 256;  // bytes; below it the CRC instruction is faster

bool is_supported();  // by this processor

// Sums a multiple of 64 bytes, at least kLeast, and copies them to `to` unless that is nullptr; stream()
// copies past the cache, and wants `to` aligned to 64 bytes. `state` is the CRC without its final inversion.
uint32_t sum(uint32_t state, void* to, const void* from, size_t size);
uint32_t stream(uint32_t state, void* to, const void* from, size_t size);

}  // namespace verbena::crc32c_fold
