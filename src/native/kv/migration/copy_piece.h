// A piece of a base copy. Long values may be left out as holes: they stay unchanged in the store's memory
// while a Keyspace::Hold protects them.
// Depends on log records and util only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::kv {

struct CopyPiece {
  struct Hole {
    size_t at, bytes;  // position and length in the piece
    const char* value;
    std::span<std::byte> chunk;      // chunk of the store's memory that contains the value
    size_t record_at, record_bytes;  // the record around the hole, without a checksum; 0 bytes: it has one
    uint32_t sum = 0;                // CRC32C of the value, set by the code that copies it
  };

  // Copies the values into their holes and sets their checksums.
  void fill_holes();
  // Once all values have checksums: completes the records, and returns the CRC32C of the whole piece.
  uint32_t seal();

  std::span<char> to;
  size_t used = 0;
  std::vector<Hole> holes;  // in ascending order
  uint64_t held_from = 0;   // Keyspace::retired_blocks() before the values were looked up; see Keyspace::Hold
};

}  // namespace verbena::kv
