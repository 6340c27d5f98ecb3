#include "transport/session/buffer_pool.h"

#include <algorithm>

#include "util/error.h"

namespace verbena::transport {

BufferPool::BufferPool(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd,
                       uint32_t buffer_bytes, uint32_t most, bool huge_pages, bool pin)
    : context_(std::move(context)),
      pd_(std::move(pd)),
      buffer_bytes_(buffer_bytes),
      most_(most),
      huge_pages_(huge_pages),
      pin_(pin) {
  add_slab();
}

MessageBuffer* BufferPool::take() {
  if (free_.empty()) {
    if (count_ == most_ || !add_slab()) return nullptr;
  }
  MessageBuffer* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

MessageBuffer* BufferPool::at(uint32_t index) {
  if (index >= count_) return nullptr;
  return &slabs_[index / kSlabBuffers].buffers[index % kSlabBuffers];
}

// False: no memory now. For the first slab, which is part of set-up, that is an error.
bool BufferPool::add_slab() try {
  const uint32_t buffers = std::min(kSlabBuffers, most_ - count_);
  Slab slab;
  slab.memory = context_->allocate(size_t{buffers} * buffer_bytes_, {.huge_pages = huge_pages_});
  slab.region = pd_->register_memory(slab.memory->data(), slab.memory->size(), access::local_write, pin_);
  slab.buffers = std::make_unique<MessageBuffer[]>(buffers);
  for (uint32_t i = buffers; i-- > 0;) {
    slab.buffers[i] = {slab.memory->data() + size_t{i} * buffer_bytes_, slab.region->lkey(), count_ + i};
    free_.push_back(&slab.buffers[i]);
  }
  slabs_.push_back(std::move(slab));
  count_ += buffers;
  return true;
} catch (const Error&) {
  if (slabs_.empty()) throw;
  return false;
}

void BufferPool::close() {
  for (Slab& slab : slabs_) slab.region->close();
}

}  // namespace verbena::transport
