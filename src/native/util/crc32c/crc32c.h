// CRC32C (Castagnoli). The fastest implementation that the CPU supports is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Continues `seed` (0 to begin) over `size` bytes: crc32c(crc32c(0, a), b) is the checksum of a then b.
uint32_t crc32c(uint32_t seed, const void* data, size_t size);

// Copies too: `to` gets exactly the bytes that were summed, even if `from` changes meanwhile.
uint32_t copy_crc32c(uint32_t seed, void* to, const void* from, size_t size);

// For long copies that this core does not read again: non-temporal stores bypass its cache, which saves
// reading the lines that they overwrite.
uint32_t stream_crc32c(uint32_t seed, void* to, const void* from, size_t size);

// The checksum of a then b, from that of each and b's length.
uint32_t combine_crc32c(uint32_t a, uint32_t b, uint64_t b_bytes);

// The portable table-driven form, for tests: crc32c() must agree with it.
uint32_t crc32c_portable(uint32_t seed, const void* data, size_t size);

}  // namespace verbena
