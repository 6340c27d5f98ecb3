// What a primary and its replica say to each other once they agree on where to begin. The log travels in
// pieces: a header and bytes. All bytes, one after the other, are one stream of log records; it may be cut
// anywhere. Pieces lie one behind the other in a ring of the replica's, where the primary WRITEs them and the
// replica finds them by looking; none goes across the ring's end. A message is sent now and then:
//   kv.log   LogMessage, then perhaps a piece that was not written → LogReceipt
// It wakes the replica, which keeps looking for a while, and tells how far the primary is. The answer comes
// when a message that wants a receipt has been dealt with, and then all that are owed come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/journal/log_layout.h"
#include "util/crc32c.h"

namespace verbena::kv {

struct LogPiece {
  uint64_t mark;     // its position, plus a secret of the replica's: nothing else in the ring looks like it
  uint64_t told_ns;  // Unix time of the primary when its clients could know of the first record; 0: a copy
  uint32_t length;   // of the bytes behind it; they are padded to a multiple of eight
  uint32_t crc;      // CRC32C of what is before it, and of the bytes
};

struct LogMessage {
  uint64_t end;  // the pieces up to this position have been written, or are in this message
  uint32_t flags;
  uint32_t unused;
};
constexpr uint32_t kPieceFollows = 1;
constexpr uint32_t kWantsReceipt = 2;  // as soon as what was sent has been applied; else it has time

struct LogReceipt {
  uint64_t expected;  // the pieces up to this position are done with, their place in the ring is free; what
                      // lies behind must be sent again if it has been sent
  uint64_t lsn, offset;     // applied: the primary's
  uint64_t durable_offset;  // up to here it is on the replica's disk; 0: it has none
};
static_assert(sizeof(LogPiece) == 24 && sizeof(LogMessage) == 16 && sizeof(LogReceipt) == 32);

// How far the replica is, as it WRITEs it into memory that the primary lends, if both are on one host. It
// is a hint: a receipt counts.
struct LogPlace {
  uint64_t expected;  // as in LogReceipt
  uint64_t hurries;   // 1: it has clients that read
};

// For so long after a message the replica looks for pieces, and the primary need not send another one.
constexpr uint64_t kAwakeNs = 60'000'000, kSpeakNs = 20'000'000;

constexpr size_t piece_bytes(size_t length) { return sizeof(LogPiece) + padded(length); }

// Of a ring of any length, what is used.
constexpr size_t usable_ring(size_t bytes) { return bytes / kAlignment * kAlignment; }

// Where the piece begins that comes next: here, or, if there is no room for any, at the ring's beginning.
constexpr uint64_t next_piece(uint64_t position, size_t ring) {
  const size_t left = ring - static_cast<size_t>(position % ring);
  return left < piece_bytes(1) ? position + left : position;
}

inline uint32_t piece_crc(const LogPiece& piece, const void* bytes) {
  return crc32c(crc32c(0, &piece, offsetof(LogPiece, crc)), bytes, piece.length);
}

}  // namespace verbena::kv
