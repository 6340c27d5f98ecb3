// The shared-memory format of the bare-ring baseline: two one-way message rings in one mapping. Ring 0
// carries messages from side 0 to side 1, ring 1 the other way. All bytes are zero at first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::bench {

constexpr uint64_t kCacheLine = 64;

// The consumer's position. It has a cache line of its own, which the producer reads only when it runs out of
// slots.
struct alignas(kCacheLine) RingHeader {
  std::atomic<uint64_t> consumed;
};

// The sequence of a slot: 1 + the number of its message. The payload follows it.
struct SlotHeader {
  std::atomic<uint64_t> sequence;
};

constexpr uint64_t ring_slot_bytes(uint64_t payload_bytes) {
  return (sizeof(SlotHeader) + payload_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

constexpr uint64_t ring_bytes(uint64_t payload_bytes, uint64_t slots) {
  return sizeof(RingHeader) + ring_slot_bytes(payload_bytes) * slots;
}

static_assert(sizeof(RingHeader) == kCacheLine);
static_assert(sizeof(SlotHeader) == 8);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(ring_slot_bytes(64) == 128 && ring_slot_bytes(56) == 64);
static_assert(ring_bytes(64, 8) == 64 + 8 * 128);

}  // namespace verbena::bench
