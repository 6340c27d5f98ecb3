// Registered buffers of one size, in slabs that are added as they are needed. Not thread-safe: the node's
// lock covers them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

struct Slot {
  std::byte* data = nullptr;
  uint32_t lkey = 0;
  uint32_t index = 0;
};

class SlotPool {
 public:
  SlotPool(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd, uint32_t slot_bytes,
           uint32_t most, bool huge_pages, bool pin);
  ~SlotPool() { close(); }

  Slot* take();  // null: all are lent
  void give(Slot* slot) { free_.push_back(slot); }
  Slot* at(uint32_t index);  // null: there is none
  uint32_t slot_bytes() const { return slot_bytes_; }
  uint32_t count() const { return count_; }
  uint32_t most() const { return most_; }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()) + most_ - count_; }
  void close();

 private:
  struct Slab {
    std::shared_ptr<Memory> memory;
    std::shared_ptr<MemoryRegion> region;
    std::unique_ptr<Slot[]> slots;
  };
  bool add_slab();

  static constexpr uint32_t kSlabSlots = 64;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProtectionDomain> pd_;
  const uint32_t slot_bytes_, most_;
  const bool huge_pages_, pin_;
  uint32_t count_ = 0;
  std::vector<Slab> slabs_;
  std::vector<Slot*> free_;  // the last used is the first taken: it is in the cache
};

}  // namespace verbena::transport
