// Two one-way message rings in one shared mapping: the format of the bare-ring baseline.
// Ring 0 carries messages from side 0 to side 1, ring 1 the other way. All of it starts as zeroes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::bench {

constexpr uint64_t kCacheLine = 64;

// The consumer tells here how far it has come; on a line of its own, read by the producer only when it runs
// out of slots.
struct alignas(kCacheLine) RingHeader {
  std::atomic<uint64_t> consumed;
};

// The sequence word of a slot: 1 + the number of the message it holds. The payload follows it.
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
