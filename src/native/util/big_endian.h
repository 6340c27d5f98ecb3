// Integers in network byte order, unaligned, for wire layouts: they read and assign like plain integers.
// Depends on the standard library only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::iwarp {

template <typename T>
class BigEndian {
 public:
  BigEndian() = default;
  BigEndian(T value) { *this = value; }  // NOLINT(google-explicit-constructor): it stands for an integer
  BigEndian& operator=(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_[i] = static_cast<uint8_t>(value >> (8 * (sizeof(T) - 1 - i)));
    }
    return *this;
  }
  operator T() const {  // NOLINT(google-explicit-constructor)
    uint64_t value = 0;
    for (const uint8_t byte : bytes_) value = value << 8 | byte;
    return static_cast<T>(value);
  }

 private:
  uint8_t bytes_[sizeof(T)] = {};
};

using Be16 = BigEndian<uint16_t>;
using Be32 = BigEndian<uint32_t>;
using Be64 = BigEndian<uint64_t>;

static_assert(sizeof(Be16) == 2 && sizeof(Be32) == 4 && sizeof(Be64) == 8);
static_assert(alignof(Be64) == 1);

}  // namespace verbena::iwarp
