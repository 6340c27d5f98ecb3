// A range of memory and its registration on each wire that needed one. Protected by the node's lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

class Audience;
class Port;

// Memory that one local key covers.
struct RegisteredRange {
  bool contains(const std::byte* at) const { return at >= begin && at < end; }
  size_t from(const std::byte* at) const { return static_cast<size_t>(end - at); }

  const std::byte *begin = nullptr, *end = nullptr;
  uint32_t lkey = 0;
};

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
  MemoryRegion& on(const Port& port) { return *piece(port, 0); }
  // A window of it for the peer of this queue pair, which is of this audience.
  std::shared_ptr<MemoryWindow> lend(const Port& port, const std::shared_ptr<QueuePair>& qp, uint32_t access,
                                     const Audience& audience);
  // The local key of the piece that contains `at`.
  uint32_t lkey(const Port& port, const std::byte* at) {
    return piece(port, static_cast<size_t>(at - data_) / piece_bytes_)->lkey();
  }
  // The piece that contains `at`.
  RegisteredRange range(const Port& port, const std::byte* at) {
    const size_t number = static_cast<size_t>(at - data_) / piece_bytes_;
    const std::byte* begin = data_ + number * piece_bytes_;
    return {begin, begin + in_piece(number * piece_bytes_), piece(port, number)->lkey()};
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
  const std::shared_ptr<MemoryRegion>& piece(const Port& port, size_t number);

  std::byte* const data_;
  const size_t length_;
  const uint32_t access_;
  const size_t piece_bytes_;
  std::vector<Known> known_;
};

}  // namespace verbena::transport
