// The memory that two processes share for one direction of a queue pair: a header, message slots, and payload
// space. The receiving side owns the segment. Each field has one writer, and the other side checks what it
// reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::shm {

constexpr uint64_t kRingMagic = 0x32676e6972627276;  // "vrbring2"
constexpr uint32_t kSlotCount = 256;
constexpr uint32_t kSlotBytes = 192;  // holds a session's message of 64 bytes with its header
constexpr uint64_t kPayloadBytes = 512 * 1024;
constexpr uint32_t kFragmentBytes = 64 * 1024;  // the longest fragment of a message in one slot

enum class SlotKind : uint8_t { send, immediate_only, staged_write, staged_read, staged_atomic };

namespace slot_flag {
constexpr uint8_t first = 1, last = 2, has_immediate = 4, solicited = 8, in_slot = 16, wants_ack = 32;
}  // namespace slot_flag

// A staged slot contains its opcode: the owner checks and executes it.
struct SlotHeader {
  uint64_t acknowledged;  // slots of the opposite ring that the writer of this slot has taken
  uint64_t payload_at;    // position in the payload space, when not in the slot
  uint32_t length;
  uint32_t immediate;
  SlotKind kind;
  uint8_t flags;
  uint8_t rnr_retry;
  uint8_t opcode;
  uint32_t rkey;
};
static_assert(sizeof(SlotHeader) == 32);

constexpr uint32_t kInSlotBytes = kSlotBytes - sizeof(uint64_t) - sizeof(SlotHeader);

// The operands of a staged slot, in place of its payload.
struct StagedOperands {
  uint64_t remote_addr;
  uint64_t compare_add;
  uint64_t swap;
};
static_assert(sizeof(StagedOperands) <= kInSlotBytes);

struct alignas(64) Slot {
  std::atomic<uint64_t> sequence;  // position + 1 once written: this store publishes the slot
  SlotHeader header;
  std::byte bytes[kInSlotBytes];
};
static_assert(sizeof(Slot) == kSlotBytes && offsetof(Slot, bytes) == 40);

enum class Responder : uint32_t { not_ready, ready, gone };

struct RingHeader {
  // Rarely written, by the side given.
  uint64_t magic;               // owner, once
  std::atomic<uint32_t> fault;  // producer: its one-sided access was refused, so the owner's QP must fail
  uint32_t unused0[13];
  // Owner: progress.
  std::atomic<uint64_t> consumed;       // slots taken
  std::atomic<uint64_t> failed_slot;    // position of the slot that failed; valid when failed_status is set
  std::atomic<uint32_t> failed_status;  // a Status, or 0
  uint32_t unused1[11];
  // Owner: what the producer must check before an access.
  std::atomic<uint32_t> responder;  // a Responder
  std::atomic<uint32_t> protection_domain;
  std::atomic<uint32_t> access_flags;  // remote accesses that the QP allows
  std::atomic<uint32_t> stalled;       // the slot at `consumed` waits for a posted receive
  uint32_t unused2[12];
  // Owner sets, producer clears: the owner must be woken.
  std::atomic<uint32_t> doorbell_armed;
  uint32_t unused3[15];
  // Producer: odd while it accesses the owner's regions directly.
  std::atomic<uint64_t> access_epoch;
  uint64_t unused4[7];
};
static_assert(sizeof(RingHeader) == 5 * 64);
static_assert(offsetof(RingHeader, consumed) == 64 && offsetof(RingHeader, responder) == 128);
static_assert(offsetof(RingHeader, doorbell_armed) == 192 && offsetof(RingHeader, access_epoch) == 256);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct RingSegment {
  RingHeader header;
  alignas(128) Slot slots[kSlotCount];
  alignas(4096) std::byte payload[kPayloadBytes];
};
static_assert(kPayloadBytes % kFragmentBytes == 0);

}  // namespace verbena::shm
