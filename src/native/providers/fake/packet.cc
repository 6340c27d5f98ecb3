#include "providers/fake/packet.h"

#include <cstring>

#include "util/crc32c/crc32c.h"

namespace verbena::fake {
namespace {

constexpr size_t kAfterCrc = offsetof(PacketHeader, sequence);

uint32_t checksum(const Packet& packet) {
  return crc32c(0, packet.data() + kAfterCrc, packet.size() - kAfterCrc);
}

}  // namespace

Packet make_packet(size_t payload_length) { return Packet(sizeof(PacketHeader) + payload_length); }

void seal(Packet& packet, const PacketHeader& header) {
  std::memcpy(packet.data(), &header, sizeof header);
  const uint32_t crc = checksum(packet);
  std::memcpy(packet.data(), &crc, sizeof crc);
}

std::optional<OpenedPacket> open(const Packet& packet) {
  OpenedPacket opened;
  std::memcpy(&opened.header, packet.data(), sizeof opened.header);
  if (opened.header.crc != checksum(packet)) return std::nullopt;
  opened.payload = std::span(packet).subspan(sizeof(PacketHeader));
  return opened;
}

}  // namespace verbena::fake
