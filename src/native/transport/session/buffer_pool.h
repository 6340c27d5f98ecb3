// Registered message buffers of one size, in slabs that are added as needed. Protected by the node's lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

struct MessageBuffer {
  std::byte* data = nullptr;
  uint32_t lkey = 0;
  uint32_t index = 0;
};

class BufferPool {
 public:
  BufferPool(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd, uint32_t buffer_bytes,
             uint32_t most, bool huge_pages, bool pin);
  ~BufferPool() { close(); }

  MessageBuffer* take();  // null: all are in use
  void give(MessageBuffer* buffer) { free_.push_back(buffer); }
  MessageBuffer* at(uint32_t index);  // null: out of range
  uint32_t buffer_bytes() const { return buffer_bytes_; }
  uint32_t count() const { return count_; }
  uint32_t most() const { return most_; }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()) + most_ - count_; }
  void close();

 private:
  struct Slab {
    std::shared_ptr<Memory> memory;
    std::shared_ptr<MemoryRegion> region;
    std::unique_ptr<MessageBuffer[]> buffers;
  };
  bool add_slab();

  static constexpr uint32_t kSlabBuffers = 64;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProtectionDomain> pd_;
  const uint32_t buffer_bytes_, most_;
  const bool huge_pages_, pin_;
  uint32_t count_ = 0;
  std::vector<Slab> slabs_;
  std::vector<MessageBuffer*> free_;  // a stack: the buffer used last is still in the cache
};

}  // namespace verbena::transport
