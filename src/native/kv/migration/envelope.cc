#include "kv/migration/envelope.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kv/journal/log_layout.h"
#include "util/crc32c.h"

namespace verbena::kv::envelope {

static_assert(std::endian::native == std::endian::little, "headers are read and written as they lie");

namespace {

constexpr char kMagic[4] = {'V', 'S', 'H', 'D'};
constexpr uint8_t kVersion = 1;

}  // namespace

uint32_t head_sum(const EnvelopeHeader& header) {
  return crc32c(0, &header, offsetof(EnvelopeHeader, checksum));
}

std::string read(std::span<const std::byte> bytes, EnvelopeHeader& header) {
  if (bytes.size() < sizeof header) {
    return std::to_string(bytes.size()) + " bytes are shorter than a header of " +
           std::to_string(sizeof header);
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "it does not begin as an envelope does";
  if (header.version != kVersion) {
    return "version " + std::to_string(header.version) + " is unknown here: this node speaks " +
           std::to_string(kVersion);
  }
  if (header.length > kLongestPayload || bytes.size() != sizeof header + header.length) {
    return std::to_string(bytes.size()) + " bytes where the header says " + std::to_string(sizeof header) +
           " and " + std::to_string(header.length);
  }
  if (header.flags & ~(kAnswer | kLast | kRefused)) return "its flags are unknown";
  if (header.first_shard > header.last_shard || header.last_shard >= kSlotCount) return "those are no shards";
  if (header.kind == kSegment && header.total > 0 &&
      (header.offset > header.total || header.length > header.total - header.offset)) {
    return "it leaves what it is a part of";
  }
  return {};
}

bool is_whole(const EnvelopeHeader& header, std::span<const std::byte> payload) {
  return crc32c(head_sum(header), payload.data(), payload.size()) == header.checksum;
}

void seal(EnvelopeHeader& header, uint32_t payload_sum) {
  header.checksum = combine_crc32c(head_sum(header), payload_sum, header.length);
}

std::string make(EnvelopeHeader header, std::string_view payload) {
  header.length = static_cast<uint32_t>(payload.size());
  seal(header, crc32c(0, payload.data(), payload.size()));
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  return out.append(payload);
}

bool is_consent(std::span<const std::byte> answer) {
  EnvelopeHeader header;
  return read(answer, header).empty() && is_whole(header, answer.subspan(sizeof header)) &&
         header.kind == kLanded && (header.flags & kAnswer) != 0 && (header.flags & kRefused) == 0;
}

std::string answer(const EnvelopeHeader& to, bool refused, std::string_view payload) {
  EnvelopeHeader header = to;
  std::swap(header.source, header.target);
  header.flags = kAnswer | (refused ? kRefused : 0);
  header.offset = header.total = 0;
  return make(header, payload);
}

}  // namespace verbena::kv::envelope
