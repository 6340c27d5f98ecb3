// A piece of memory and its registration on each wire that needed one. Not thread-safe: the node's lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

class Port;

class Registration {
 public:
  Registration(std::byte* data, size_t length, uint32_t access, bool pin = false)
      : data_(data), length_(length), access_(access), pin_(pin) {}
  ~Registration() { close(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return data_; }
  size_t length() const { return length_; }
  uint32_t access() const { return access_; }
  // Its region on this wire; registers at first use, which throws as register_memory() does.
  MemoryRegion& on(const Port& port);
  // Ends them all: afterwards no wire touches the memory.
  void close();

 private:
  std::byte* const data_;
  const size_t length_;
  const uint32_t access_;
  const bool pin_;
  std::vector<std::pair<const Port*, std::shared_ptr<MemoryRegion>>> regions_;
};

}  // namespace verbena::transport
