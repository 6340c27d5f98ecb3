// RingProducer and RingConsumer: one direction of a queue pair through a RingSegment. No locks and no system
// calls; each end is used by one thread at a time. All that the peer wrote is checked.
#pragma once

#include <algorithm>
#include <optional>

#include "providers/shm/ring_layout.h"
#include "util/prefetch.h"

namespace verbena::shm {

class RingProducer {
 public:
  explicit RingProducer(RingSegment* segment) : segment_(segment) {}

  RingHeader& header() const { return segment_->header; }
  uint64_t produced() const { return produced_; }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t outstanding() const { return produced_ - acknowledged_; }

  // The next free slot, or nullptr while the ring is full. Fill it, then publish().
  Slot* try_claim() {
    if (outstanding() == kSlotCount) return nullptr;
    return &segment_->slots[produced_ % kSlotCount];
  }
  // Contiguous payload space for the claimed slot; `position` goes into its header. nullptr: no room.
  std::byte* try_claim_payload(uint32_t length, uint64_t* position) {
    uint64_t at = payload_tail_;
    const uint64_t offset = at % kPayloadBytes;
    if (offset + length > kPayloadBytes) at += kPayloadBytes - offset;  // does not wrap: skip the rest
    if (at + length - payload_head_ > kPayloadBytes) return nullptr;
    *position = at;
    claimed_end_ = (at + length + 63) & ~uint64_t{63};
    return segment_->payload + at % kPayloadBytes;
  }
  std::byte* payload(uint64_t position) const { return segment_->payload + position % kPayloadBytes; }

  // Makes the claimed slot visible after its header and bytes were written; returns its position.
  uint64_t publish(Slot* slot) {
    payload_tail_ = std::max(payload_tail_, claimed_end_);
    payload_ends_[produced_ % kSlotCount] = payload_tail_;
    slot->sequence.store(produced_ + 1, std::memory_order_release);
    // The consumer still caches the next slot from the last lap: fetch it while no message waits for it.
    const Slot& next = segment_->slots[(produced_ + 1) % kSlotCount];
    for (size_t at = 0; at < sizeof next; at += 64) {
      prefetch_for_write(reinterpret_cast<const std::byte*>(&next) + at);
    }
    return produced_++;
  }

  // Takes an acknowledgement; false when it is impossible (the peer wrote an invalid value).
  bool acknowledge(uint64_t consumed) {
    if (consumed < acknowledged_) return true;  // an older one
    if (consumed > produced_) return false;
    if (consumed == acknowledged_) return true;
    acknowledged_ = consumed;
    return true;
  }
  // Frees the payload space up to and including the slot at `position`.
  void release_payload(uint64_t position) { payload_head_ = payload_ends_[position % kSlotCount]; }

 private:
  RingSegment* segment_;
  uint64_t produced_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t payload_tail_ = 0;
  uint64_t payload_head_ = 0;
  uint64_t claimed_end_ = 0;
  uint64_t payload_ends_[kSlotCount] = {};
};

class RingConsumer {
 public:
  explicit RingConsumer(RingSegment* segment) : segment_(segment) {}

  RingHeader& header() const { return segment_->header; }
  uint64_t consumed() const { return consumed_; }

  // The front slot if it was published, else nullptr.
  Slot* peek() const {
    Slot& slot = segment_->slots[consumed_ % kSlotCount];
    if (slot.sequence.load(std::memory_order_acquire) != consumed_ + 1) return nullptr;
    // Most of the payload, while the caller reads the header.
    prefetch(reinterpret_cast<const std::byte*>(&slot) + 64);
    prefetch(reinterpret_cast<const std::byte*>(&slot) + 128);
    return &slot;
  }
  // The payload of a slot; nullptr when its header points outside the segment.
  std::byte* payload(Slot* slot, const SlotHeader& header) const {
    if (header.flags & slot_flag::in_slot) return header.length <= kInSlotBytes ? slot->bytes : nullptr;
    const uint64_t offset = header.payload_at % kPayloadBytes;
    if (header.length > kFragmentBytes || header.length > kPayloadBytes - offset) return nullptr;
    return segment_->payload + offset;
  }
  void release() { ++consumed_; }
  void publish_consumed() { segment_->header.consumed.store(consumed_, std::memory_order_release); }

 private:
  RingSegment* segment_;
  uint64_t consumed_ = 0;
};

}  // namespace verbena::shm
