// The layout of a session's messages: a header, then the payload or a reference to pull it from.
// Little-endian. Only parse_message() may read bytes off the wire.
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
  request = 1,      // calls a method; answered by a reply or failure with the same `call`
  reply = 2,        // the method's result
  failure = 3,      // the payload is the reason: an Outcome, then text
  cancel = 4,       // the caller no longer waits
  acknowledge = 5,  // carries only `acknowledged`; not sequenced, like pings
  ping = 6,
  close = 7,  // the session ends; no request follows
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
  uint64_t acknowledged = 0;  // messages of the peer up to this one have been processed
  uint64_t call = 0;          // the caller's id of the operation
  uint32_t method = 0;
  uint32_t crc = 0;  // CRC32C of the header up to here, then of what follows
};
static_assert(sizeof(MessageHeader) == 40 && offsetof(MessageHeader, crc) == 36);

// A payload that is too long for a message: the receiver READs it, then acknowledges the message.
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
