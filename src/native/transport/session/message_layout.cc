#include "transport/session/message_layout.h"

#include <cstring>

#include "util/crc32c/crc32c.h"

namespace verbena::transport {
namespace {

bool is_sequenced(MessageKind kind) { return kind != MessageKind::acknowledge && kind != MessageKind::ping; }

bool is_valid(const MessageHeader& header) {
  if (header.version != kMessageVersion) return false;
  if (header.kind < MessageKind::request || header.kind > MessageKind::close) return false;
  if ((header.sequence != 0) != is_sequenced(header.kind)) return false;
  if (header.flags & ~message_flag::by_reference) return false;
  if (header.flags & message_flag::by_reference) {
    return header.length == sizeof(Reference) &&
           (header.kind == MessageKind::request || header.kind == MessageKind::reply);
  }
  return true;
}

}  // namespace

uint32_t message_crc(const MessageHeader& header, std::span<const std::byte> payload) {
  return crc32c(crc32c(0, &header, offsetof(MessageHeader, crc)), payload.data(), payload.size());
}

std::optional<Message> parse_message(std::span<const std::byte> bytes) {
  Message message;
  if (bytes.size() < sizeof message.header) return {};
  std::memcpy(&message.header, bytes.data(), sizeof message.header);
  message.payload = bytes.subspan(sizeof message.header);
  if (message.header.length != message.payload.size() || !is_valid(message.header)) return {};
  if (message.header.crc != message_crc(message.header, message.payload)) return {};
  return message;
}

}  // namespace verbena::transport
