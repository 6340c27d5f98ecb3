// The header of messages about shards, as verbena.shards.envelope has it: the same bytes on every wire.
// Native code reads two kinds of them, the pieces of base copies and the notices that they have landed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace verbena::kv {

struct EnvelopeHeader {
  char magic[4];
  uint8_t version;
  uint8_t kind;
  uint16_t flags;
  uint8_t source[20], target[20];
  uint16_t first_shard, last_shard;
  uint8_t migration[16];
  uint32_t segment;
  uint64_t offset, total, sequence, boot_epoch;
  uint32_t length;    // of the payload that follows
  uint32_t checksum;  // CRC32C of all before it, and of the payload
};
static_assert(sizeof(EnvelopeHeader) == 112 && offsetof(EnvelopeHeader, segment) == 68 &&
              offsetof(EnvelopeHeader, checksum) == 108);

namespace envelope {
constexpr uint8_t kSegment = 2, kLanded = 9;              // kinds
constexpr uint16_t kAnswer = 1, kLast = 2, kRefused = 4;  // flags
constexpr uint32_t kLongestPayload = 1u << 30;

// Reads the header of exactly one envelope. Says what is wrong with it; empty: nothing but perhaps the sum.
std::string read(std::span<const std::byte> bytes, EnvelopeHeader& header);
// Is the header's sum that of itself and this payload?
bool is_whole(const EnvelopeHeader& header, std::span<const std::byte> payload);
// The same in steps: the sum of what the header's covers of itself, to be continued over the payload, must
// become the header's.
uint32_t head_sum(const EnvelopeHeader& header);
// Sets the header's sum, from that of the payload alone.
void seal(EnvelopeHeader& header, uint32_t payload_sum);
// A whole envelope with this header, but for its length and sum.
std::string make(EnvelopeHeader header, std::string_view payload);
// Is it an answer to a notice, and does not refuse?
bool is_consent(std::span<const std::byte> answer);
// The answer to a message.
std::string answer(const EnvelopeHeader& to, bool refused, std::string_view payload);
}  // namespace envelope

}  // namespace verbena::kv
