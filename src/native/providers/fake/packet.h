// Packets as bytes: sealed with a checksum by the sender, opened only if they are intact.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "providers/fake/packet_layout.h"

namespace verbena::fake {

using Packet = std::vector<std::byte>;

struct OpenedPacket {
  PacketHeader header;
  std::span<const std::byte> payload;  // within the packet
};

// A packet with room for `payload_length` bytes, to be filled and sealed.
Packet make_packet(size_t payload_length);
inline std::span<std::byte> payload_of(Packet& packet) {
  return std::span(packet).subspan(sizeof(PacketHeader));
}
void seal(Packet& packet, const PacketHeader& header);

// Empty when the packet is damaged.
std::optional<OpenedPacket> open(const Packet& packet);

}  // namespace verbena::fake
