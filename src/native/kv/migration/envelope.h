// The header of messages between cluster nodes, byte for byte that of verbena.shards.envelope. Native code
// reads two kinds: pieces of base copies, and the notices that announce them.
// Depends on util only.
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
  uint32_t checksum;  // CRC32C of the fields above and of the payload
};
static_assert(sizeof(EnvelopeHeader) == 112 && offsetof(EnvelopeHeader, segment) == 68 &&
              offsetof(EnvelopeHeader, checksum) == 108);

namespace envelope {
constexpr uint8_t kSegment = 2, kNotice = 9;              // kinds
constexpr uint16_t kAnswer = 1, kLast = 2, kRefused = 4;  // flags
constexpr uint32_t kLongestPayload = 1u << 30;

// Reads the header of exactly one envelope and returns what is wrong with it. Empty: nothing, except that the
// checksum is not verified.
std::string read(std::span<const std::byte> bytes, EnvelopeHeader& header);
// Whether the header's checksum matches the header and this payload.
bool has_valid_checksum(const EnvelopeHeader& header, std::span<const std::byte> payload);
// CRC32C of the header without its checksum field. Continued over the payload it must equal that field.
uint32_t header_crc(const EnvelopeHeader& header);
// Sets the header's checksum; `payload_sum` is the CRC32C of the payload alone.
void seal(EnvelopeHeader& header, uint32_t payload_sum);
// An envelope with this header; length and checksum are set here.
std::string make(EnvelopeHeader header, std::string_view payload);
// Whether this is a reply to a notice that accepts it.
bool is_acceptance(std::span<const std::byte> answer);
// The reply to a message.
std::string answer(const EnvelopeHeader& to, bool refused, std::string_view payload);
}  // namespace envelope

}  // namespace verbena::kv
