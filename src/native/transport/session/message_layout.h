// What travels in a session's messages: one header, then the payload, or where to pull it from.
// Little-endian. Everything off the wire goes through parse(); nothing else may read it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbena::transport {

static_assert(std::endian::native == std::endian::little, "the layouts are the memory's own");

constexpr uint8_t kMessageVersion = 1;

enum class MessageKind : uint8_t {
  request = 1,      // of a method; answered by a reply or a failure with the same call
  reply = 2,        // the method's result
  failure = 3,      // the payload is the reason: a FailureCode, then words
  cancel = 4,       // the caller lost interest
  acknowledge = 5,  // nothing but its `acknowledged`; not sequenced, and so are pings
  ping = 6,
  goodbye = 7,  // the session ends; no request follows
};

namespace message_flag {
constexpr uint16_t by_reference = 1;  // the payload is a Reference
}

struct MessageHeader {
  uint8_t version = kMessageVersion;
  MessageKind kind = MessageKind::request;
  uint16_t flags = 0;
  uint32_t length = 0;        // bytes that follow
  uint64_t sequence = 0;      // counts the sequenced messages of a direction from 1; 0: not sequenced
  uint64_t acknowledged = 0;  // all of the peer's up to this one are done with, and may be forgotten
  uint64_t call = 0;          // the caller's name for it
  uint32_t method = 0;
  uint32_t crc = 0;  // CRC32C of the header up to here, then of what follows
};
static_assert(sizeof(MessageHeader) == 40 && offsetof(MessageHeader, crc) == 36);

// A payload that is too long to be sent: the receiver READs it, then acknowledges.
struct Reference {
  uint64_t addr = 0;
  uint64_t length = 0;
  uint32_t rkey = 0;
  uint32_t crc = 0;  // of the payload
};
static_assert(sizeof(Reference) == 24);

struct Message {
  MessageHeader header;
  std::span<const std::byte> payload;
};

uint32_t message_crc(const MessageHeader& header, std::span<const std::byte> payload);

// Empty: not a message of this version, or damaged.
std::optional<Message> parse_message(std::span<const std::byte> bytes);

}  // namespace verbena::transport
