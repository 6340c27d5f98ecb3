// The header of every message between cluster nodes. Its format is the same on all wires. The payload follows
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::kv {

// The type of a message. An answer has the kind of its request, and the flag `answer`.
enum class EnvelopeKind : uint8_t {
  offer = 1,    // a move begins: the target prepares
  segment = 2,  // a piece of the base copy
  tail = 3,     // a piece of the log after the base copy
  digest = 4,   // a checksum over the slots' content
  own = 5,      // the map has given the slots to the target
  abort = 6,    // the attempt failed: the target discards what it received
  gossip = 7,   // liveness and load of the members
  windows = 8,  // the target lends windows for the base copy to the session that carries this message
  notice = 9,   // a segment is in the target's memory, in the window that the payload names
  yield = 10,   // planned failover: the primary stops writing and answers with its position
};

enum class EnvelopeFlag : uint16_t {
  answer = 1,
  last = 2,     // the last of its kind in this migration
  refused = 4,  // the payload is the reason
};

struct EnvelopeHeader {
  char magic[4];  // VSHD
  uint8_t version;
  EnvelopeKind kind;
  uint16_t flags;      // bits of EnvelopeFlag
  uint8_t source[20];  // id of a node
  uint8_t target[20];
  uint16_t first_slot, last_slot;
  uint8_t migration[16];
  uint32_t segment;
  uint64_t offset, total, sequence, boot_epoch;
  uint32_t length;    // of the payload that follows
  uint32_t checksum;  // CRC32C of the fields above and of the payload
};
static_assert(sizeof(EnvelopeHeader) == 112 && offsetof(EnvelopeHeader, segment) == 68 &&
              offsetof(EnvelopeHeader, checksum) == 108);

// The payload of a notice.
struct PieceNotice {
  uint32_t window;
  uint32_t bytes;  // of the envelope, header included
};
static_assert(sizeof(PieceNotice) == 8);

namespace envelope {
constexpr char kMagic[4] = {'V', 'S', 'H', 'D'};
constexpr uint8_t kVersion = 1;
constexpr auto kAnswer = static_cast<uint16_t>(EnvelopeFlag::answer);
constexpr auto kLast = static_cast<uint16_t>(EnvelopeFlag::last);
constexpr auto kRefused = static_cast<uint16_t>(EnvelopeFlag::refused);
constexpr uint32_t kLongestPayload = 1u << 30;
constexpr const char* kNoticeMethod = "shards.notice";  // the session call that carries notices
}  // namespace envelope

}  // namespace verbena::kv
