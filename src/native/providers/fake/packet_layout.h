// The packet format: one packet per request and one per response, a header followed by the whole payload.
// Numbers are in host order, since both ends are in one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "verbs/types.h"

namespace verbena::fake {

enum class PacketKind : uint8_t { request = 1, response, rnr_nak };

namespace packet_flag {
constexpr uint8_t solicited = 1;
}  // namespace packet_flag

struct PacketHeader {
  uint32_t crc = 0;  // CRC32C of the rest of the header, then of the payload
  uint32_t sequence = 0;
  Gid source_gid{};
  uint32_t source_qp = 0;
  uint32_t dest_qp = 0;
  PacketKind kind = PacketKind::request;
  Opcode opcode = Opcode::send;
  Status status = Status::success;  // of a response
  uint8_t flags = 0;
  uint32_t rnr_timer = 0;  // of an RNR NAK
  uint32_t immediate = 0;
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;
  uint64_t length = 0;  // bytes to move: the payload, or what a READ requests
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};
static_assert(sizeof(PacketHeader) == 80 && offsetof(PacketHeader, kind) == 32);
static_assert(std::is_trivially_copyable_v<PacketHeader>);

constexpr uint32_t kSequenceMask = 0xffffff;

}  // namespace verbena::fake
