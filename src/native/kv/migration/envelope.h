// Packs and parses the messages between cluster nodes, without I/O. Input is untrusted until parsed.
// Depends on log records and util only.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kv/migration/envelope_layout.h"

namespace verbena::kv::envelope {

constexpr const char* kWrongChecksum = "the checksum over header and payload is wrong";

// Reads the header of exactly one envelope and returns what is wrong with it. Empty: nothing, except that the
// checksum is not verified.
std::string read(std::span<const std::byte> bytes, EnvelopeHeader& header);
// Whether the header's checksum matches the header and this payload.
bool has_valid_checksum(const EnvelopeHeader& header, std::span<const std::byte> payload);
// CRC32C of the header without its checksum field. Continued over the payload it must equal that field.
uint32_t header_crc(const EnvelopeHeader& header);
// Sets the header's checksum; `payload_sum` is the CRC32C of the payload alone.
void seal(EnvelopeHeader& header, uint32_t payload_sum);
// Sets magic, version, length and checksum of a header for this payload.
void complete(EnvelopeHeader& header, std::string_view payload);
// An envelope with this header, which is completed.
std::string make(EnvelopeHeader header, std::string_view payload);
// Whether this is a reply to a notice that accepts it.
bool is_acceptance(std::span<const std::byte> answer);
// The reply to a message.
std::string answer(const EnvelopeHeader& to, bool refused, std::string_view payload);

}  // namespace verbena::kv::envelope
