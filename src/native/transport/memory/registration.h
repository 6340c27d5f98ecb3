// A piece of memory and its registration on each wire that needed one. Not thread-safe: the node's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

class Port;

class Registration {
 public:
  // With `piece_bytes` long memory becomes several regions: only lkey() is of use then.
  Registration(std::byte* data, size_t length, uint32_t access, size_t piece_bytes = SIZE_MAX)
      : data_(data), length_(length), access_(access), piece_bytes_(piece_bytes) {}
  ~Registration() { close(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return data_; }
  size_t length() const { return length_; }
  uint32_t access() const { return access_; }
  // Its region on this wire; registers at first use, which throws as register_memory() does.
  MemoryRegion& on(const Port& port) { return piece(port, 0); }
  // The local key for memory from `at` on, within a piece.
  uint32_t lkey(const Port& port, const std::byte* at) {
    return piece(port, static_cast<size_t>(at - data_) / piece_bytes_).lkey();
  }
  // How much from this offset on lies in one piece.
  size_t in_piece(size_t offset) const {
    return std::min(length_ - offset, piece_bytes_ - offset % piece_bytes_);
  }
  // Ends them all: afterwards no wire touches the memory.
  void close();

 private:
  struct Known {
    const Port* port;
    size_t number;
    std::shared_ptr<MemoryRegion> region;
  };
  MemoryRegion& piece(const Port& port, size_t number);

  std::byte* const data_;
  const size_t length_;
  const uint32_t access_;
  const size_t piece_bytes_;
  std::vector<Known> known_;
};

}  // namespace verbena::transport
