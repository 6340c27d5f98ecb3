#include "transport/session/slots.h"

#include <algorithm>

#include "util/error.h"

namespace verbena::transport {

SlotPool::SlotPool(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd,
                   uint32_t slot_bytes, uint32_t most, bool huge_pages, bool pin)
    : context_(std::move(context)),
      pd_(std::move(pd)),
      slot_bytes_(slot_bytes),
      most_(most),
      huge_pages_(huge_pages),
      pin_(pin) {
  add_slab();
}

Slot* SlotPool::take() {
  if (free_.empty()) {
    if (count_ == most_ || !add_slab()) return nullptr;
  }
  Slot* slot = free_.back();
  free_.pop_back();
  return slot;
}

Slot* SlotPool::at(uint32_t index) {
  if (index >= count_) return nullptr;
  return &slabs_[index / kSlabSlots].slots[index % kSlabSlots];
}

// False: memory is short for now. The first slab is part of the set-up, where that is an error.
bool SlotPool::add_slab() try {
  const uint32_t slots = std::min(kSlabSlots, most_ - count_);
  Slab slab;
  slab.memory = context_->allocate(size_t{slots} * slot_bytes_, huge_pages_);
  slab.region = pd_->register_memory(slab.memory->data(), slab.memory->size(), access::local_write, pin_);
  slab.slots = std::make_unique<Slot[]>(slots);
  for (uint32_t i = slots; i-- > 0;) {
    slab.slots[i] = {slab.memory->data() + size_t{i} * slot_bytes_, slab.region->lkey(), count_ + i};
    free_.push_back(&slab.slots[i]);
  }
  slabs_.push_back(std::move(slab));
  count_ += slots;
  return true;
} catch (const Error&) {
  if (slabs_.empty()) throw;
  return false;
}

void SlotPool::close() {
  for (Slab& slab : slabs_) slab.region->close();
}

}  // namespace verbena::transport
