// A range of memory and its registration on each wire that needed one. Protected by the node's lock.
// May depend on transport/, verbs/ and util/ only.
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
  // Memory longer than `piece_bytes` is registered as several regions; then only lkey() may be used.
  Registration(std::byte* data, size_t length, uint32_t access, size_t piece_bytes = SIZE_MAX)
      : data_(data), length_(length), access_(access), piece_bytes_(piece_bytes) {}
  ~Registration() { close(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  std::byte* data() const { return data_; }
  size_t length() const { return length_; }
  uint32_t access() const { return access_; }
  // Its region on this wire. Registers at first use, and throws as register_memory() does.
  MemoryRegion& on(const Port& port) { return piece(port, 0); }
  // The local key of the piece that contains `at`.
  uint32_t lkey(const Port& port, const std::byte* at) {
    return piece(port, static_cast<size_t>(at - data_) / piece_bytes_).lkey();
  }
  // Bytes from this offset to the end of its piece.
  size_t in_piece(size_t offset) const {
    return std::min(length_ - offset, piece_bytes_ - offset % piece_bytes_);
  }
  // Deregisters on all wires: afterwards none accesses the memory.
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
