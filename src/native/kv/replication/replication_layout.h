// The wire format of replication after the handshake. The log travels in pieces: a header and bytes. The
// bytes of all pieces together are one stream of log records, which may be cut anywhere. Pieces lie one
// behind the other in a ring of the replica's memory, where the primary WRITEs them and the replica finds
// them by polling; no piece crosses the ring's end. Now and then the primary also sends a message:
//   kv.log   LogMessage, optionally followed by a piece that was not written → LogReceipt
// A message wakes the replica, which then polls for a while, and names the primary's position. The replica
// replies once a message that requests a receipt has been processed; then it replies to all earlier messages
// as well.
// Depends on log_layout.h and util only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kv/journal/log_layout.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv {

constexpr const char* kLogMethod = "kv.log";  // the session call that carries pieces of the log

struct LogPiece {
  uint64_t ring_tag;    // its position plus a secret of the replica: nothing else in the ring matches it
  uint64_t visible_ns;  // Unix time at which the primary's clients could see its first record; 0: base copy
  uint32_t length;      // of the bytes that follow, without their padding to a multiple of eight
  uint32_t crc;         // CRC32C of the fields above and of the bytes
};

struct LogMessage {
  uint64_t end;  // pieces up to this position have been written, or are in this message
  uint32_t flags;
  uint32_t unused;
};
constexpr uint32_t kPieceFollows = 1;
constexpr uint32_t kWantsReceipt =
    2;  // reply as soon as the sent pieces are applied; otherwise the reply may wait

struct LogReceipt {
  uint64_t expected;     // pieces up to this position are applied and their place in the ring is free; pieces
                         // behind it must be sent again if they were sent
  uint64_t lsn, offset;  // of the primary's log, applied
  uint64_t durable_offset;  // on the replica's disk up to here; 0: it has no log on disk
};
static_assert(sizeof(LogPiece) == 24 && sizeof(LogMessage) == 16 && sizeof(LogReceipt) == 32);

// The replica's position, which it WRITEs into the primary's memory if both are on one host. A hint: only
// receipts are binding.
struct ReplicaPosition {
  uint64_t expected;  // as in LogReceipt
  uint64_t active;    // 1: its clients sent commands lately
};

// After a message the replica polls for kPollNs; the primary sends the next one after kMessageIntervalNs.
constexpr uint64_t kPollNs = 60'000'000, kMessageIntervalNs = 20'000'000;

constexpr size_t piece_bytes(size_t length) { return sizeof(LogPiece) + padded(length); }

constexpr size_t kMinRingBytes = 64u << 10, kMaxRingBytes = 1u << 30;
// The part of a ring that is used.
constexpr size_t usable_ring(size_t bytes) { return bytes / kAlignment * kAlignment; }

// The position of the next piece: here, or at the ring's beginning if no piece fits before its end.
constexpr uint64_t next_piece(uint64_t position, size_t ring) {
  const size_t left = ring - static_cast<size_t>(position % ring);
  return left < piece_bytes(1) ? position + left : position;
}

// Copies a piece's bytes and returns the checksum of what was copied: the bytes may change meanwhile.
inline uint32_t copy_piece(const LogPiece& piece, void* to, const void* bytes) {
  return copy_crc32c(crc32c(0, &piece, offsetof(LogPiece, crc)), to, bytes, piece.length);
}
inline uint32_t piece_crc(const LogPiece& piece, const void* bytes) {
  return crc32c(crc32c(0, &piece, offsetof(LogPiece, crc)), bytes, piece.length);
}

// Copies the bytes of the piece at `position` to `copy` and returns its header. `bytes` begin with the header
// and end with the ring or the message; the primary may change them meanwhile. Empty: it is not that piece,
// or not complete.
inline std::optional<LogPiece> read_piece(std::string_view bytes, uint64_t ring_tag, uint64_t position,
                                          std::string& copy) {
  LogPiece piece;
  if (bytes.size() < sizeof piece) return {};
  std::memcpy(&piece, bytes.data(), sizeof piece);
  if (piece.ring_tag != ring_tag + position) return {};  // not written yet, or overwritten
  if (piece.length == 0 || piece.length > bytes.size() - sizeof piece) return {};
  if (copy.size() < piece.length) copy.resize(piece.length);
  // A piece that is just being written is complete at the next poll; a damaged one is sent again.
  if (copy_piece(piece, copy.data(), bytes.data() + sizeof piece) != piece.crc) return {};
  return piece;
}

// Reads a kv.log message; the piece in it, if any, follows the header. Returns why it is refused, or null.
inline const char* read_log_message(std::span<const std::byte> payload, LogMessage& header) {
  if (payload.size() < sizeof header) return "the message is too short";
  std::memcpy(&header, payload.data(), sizeof header);
  const auto rest = payload.subspan(sizeof header);
  LogPiece piece{};
  if (rest.size() >= sizeof piece) std::memcpy(&piece, rest.data(), sizeof piece);
  const bool has_piece = header.flags & kPieceFollows;
  const bool is_whole =
      has_piece ? rest.size() >= sizeof piece && rest.size() == piece_bytes(piece.length) : rest.empty();
  return header.flags > (kPieceFollows | kWantsReceipt) || !is_whole ? "the message is invalid" : nullptr;
}

}  // namespace verbena::kv
