// CRC32C (Castagnoli), by the fastest means of the CPU, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Continues `seed` (0 to begin) over `size` bytes: crc32c(crc32c(0, a), b) is the checksum of a then b.
uint32_t crc32c(uint32_t seed, const void* data, size_t size);

// The same, and a copy: `to` gets exactly the bytes that were summed, whatever happens to `from` meanwhile.
uint32_t copy_crc32c(uint32_t seed, void* to, const void* from, size_t size);

// The same for long copies that this core does not look at again: they go past its cache to memory, which
// spares reading what they overwrite.
uint32_t stream_crc32c(uint32_t seed, void* to, const void* from, size_t size);

// The checksum of a then b, from that of each and b's length.
uint32_t combine_crc32c(uint32_t a, uint32_t b, uint64_t b_bytes);

// The portable table-driven form; the one above must agree with it.
uint32_t crc32c_portable(uint32_t seed, const void* data, size_t size);

}  // namespace verbena
