// A piece of a base copy in memory. Long values may be missing from it, for which it has room: they are where
// the store has them, and stay there, as they are, while somebody holds them (Keyspace::Hold).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::kv {

struct CopyPiece {
  struct Hole {
    size_t at, bytes;  // in the piece
    const char* value;
    std::span<std::byte> chunk;      // of the store's memory, in which the value lies
    size_t record_at, record_bytes;  // what is around it, without a checksum; 0 bytes: it has one
    uint32_t sum = 0;                // CRC32C of the value: whoever moves it sets it
  };

  // Copies the values in, and sums them.
  void plug();
  // When all values are summed: gives the records their checksums, and returns the CRC32C of everything.
  uint32_t seal();

  std::span<char> to;
  size_t used = 0;
  std::vector<Hole> holes;  // in order
  uint64_t held_from = 0;   // what keeps the values: Keyspace::retired_blocks() before they were looked up
};

}  // namespace verbena::kv
