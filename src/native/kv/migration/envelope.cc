#include "kv/migration/envelope.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kv/journal/log_layout.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv::envelope {

static_assert(std::endian::native == std::endian::little,
              "headers are read and written in native byte order");

namespace {

std::string number(uint64_t value) { return std::to_string(value); }
std::string number(EnvelopeKind kind) { return number(static_cast<uint64_t>(kind)); }

bool is_known(EnvelopeKind kind) { return kind >= EnvelopeKind::offer && kind <= EnvelopeKind::yield; }

bool is_part(EnvelopeKind kind) { return kind == EnvelopeKind::segment || kind == EnvelopeKind::tail; }

}  // namespace

uint32_t header_crc(const EnvelopeHeader& header) {
  return crc32c(0, &header, offsetof(EnvelopeHeader, checksum));
}

std::string read(std::span<const std::byte> bytes, EnvelopeHeader& header) {
  if (bytes.size() < sizeof header) {
    return number(bytes.size()) + " bytes are shorter than a header of " + number(sizeof header);
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "the envelope's magic bytes are missing";
  if (header.version != kVersion) {
    return "version " + number(header.version) + " is unknown here: this node has " + number(kVersion);
  }
  if (header.length > kLongestPayload || bytes.size() != sizeof header + header.length) {
    return number(bytes.size()) + " bytes where the header says " + number(sizeof header) + " and " +
           number(header.length);
  }
  if (!is_known(header.kind)) return "type " + number(header.kind) + " is unknown";
  if (header.flags & ~(kAnswer | kLast | kRefused)) return "flags " + number(header.flags) + " are unknown";
  if (header.first_slot > header.last_slot || header.last_slot >= kSlotCount) {
    return number(header.first_slot) + "-" + number(header.last_slot) + " are not slots";
  }
  if (is_part(header.kind) && header.total > 0 &&
      (header.offset > header.total || header.length > header.total - header.offset)) {
    return number(header.length) + " bytes at offset " + number(header.offset) + " of " +
           number(header.total);
  }
  return {};
}

bool has_valid_checksum(const EnvelopeHeader& header, std::span<const std::byte> payload) {
  return crc32c(header_crc(header), payload.data(), payload.size()) == header.checksum;
}

void seal(EnvelopeHeader& header, uint32_t payload_sum) {
  header.checksum = combine_crc32c(header_crc(header), payload_sum, header.length);
}

void complete(EnvelopeHeader& header, std::string_view payload) {
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.length = static_cast<uint32_t>(payload.size());
  seal(header, crc32c(0, payload.data(), payload.size()));
}

std::string make(EnvelopeHeader header, std::string_view payload) {
  complete(header, payload);
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  return out.append(payload);
}

bool is_acceptance(std::span<const std::byte> answer) {
  EnvelopeHeader header;
  return read(answer, header).empty() && has_valid_checksum(header, answer.subspan(sizeof header)) &&
         header.kind == EnvelopeKind::notice && (header.flags & kAnswer) != 0 &&
         (header.flags & kRefused) == 0;
}

std::string answer(const EnvelopeHeader& to, bool refused, std::string_view payload) {
  EnvelopeHeader header = to;
  std::swap(header.source, header.target);
  header.flags = kAnswer | (refused ? kRefused : 0);
  header.offset = header.total = 0;
  return make(header, payload);
}

}  // namespace verbena::kv::envelope
