// What a primary and its replica say to each other by a session's calls once they agree on where to begin:
//   kv.log   LogPiece, then its bytes unless they have been written into the replica's ring → LogReceipt
// The answer to a piece comes when one that wants a receipt has been applied, and then all that are owed
// come. The bytes of all pieces, one after the other, are one stream of log records; it may be cut anywhere.
#pragma once

#include <cstdint>

namespace verbena::kv {

struct LogPiece {
  uint64_t position;  // in the stream, from 0 on; in the ring: modulo its length
  uint32_t length;    // 0: nothing new; only a receipt is wanted
  uint32_t crc;       // CRC32C of the bytes
  uint32_t flags;
  uint32_t unused;
};
constexpr uint32_t kBytesFollow = 1;   // else they are in the ring
constexpr uint32_t kWantsReceipt = 2;  // as soon as it has been applied; else it has time

struct LogReceipt {
  uint64_t expected;  // the stream up to here is done with, its place in the ring is free; what lies behind
                      // must be sent again if it has been sent
  uint64_t lsn, offset;     // applied: the primary's
  uint64_t durable_offset;  // up to here it is on the replica's disk; 0: it has none
};
static_assert(sizeof(LogPiece) == 24 && sizeof(LogReceipt) == 32);

}  // namespace verbena::kv
