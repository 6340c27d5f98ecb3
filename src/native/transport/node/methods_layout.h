// Payloads of the methods that every node serves: messages of a session about memory.
#pragma once

#include <cstdint>

namespace verbena::transport {

// resolve: asks where a region lies.
struct ResolveRequest {
  uint64_t key;
};
// The reply to resolve.
struct ResolveReply {
  uint64_t addr, length;
  uint32_t rkey, access;
};
// The longest range that verify and checksum take.
constexpr uint64_t kMaxFragment = 4u << 20;
// verify: compares `crc`; checksum: ignores it and returns the CRC32C.
struct RangeRequest {
  uint64_t key, offset, length;
  uint32_t crc, unused;
};
// atomic: the reply is the previous word.
struct AtomicRequest {
  uint64_t key, offset, compare_add, swap;
  uint32_t opcode, unused;
};
static_assert(sizeof(ResolveReply) == 24 && sizeof(RangeRequest) == 32 && sizeof(AtomicRequest) == 40);

}  // namespace verbena::transport
