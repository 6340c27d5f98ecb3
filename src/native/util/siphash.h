// SipHash-1-3, a keyed hash: a client that does not know the key cannot choose keys that collide.
// Depends on the standard library only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace verbena::kv {

struct HashKey {
  uint64_t low = 0, high = 0;
};

// Inlined by hand to keep the state in registers: an out-of-line round would load its four words from memory.
inline uint64_t siphash(const HashKey& key, std::string_view data) {
  uint64_t a = key.low ^ 0x736f6d6570736575, b = key.high ^ 0x646f72616e646f6d;
  uint64_t c = key.low ^ 0x6c7967656e657261, d = key.high ^ 0x7465646279746573;
  const auto round = [&]() __attribute__((always_inline)) {
    a += b, c += d;
    b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    a += d, c += b;
    d = std::rotl(d, 21) ^ a, b = std::rotl(b, 17) ^ c;
    c = std::rotl(c, 32);
  };
  const auto take = [&](uint64_t word) __attribute__((always_inline)) {
    d ^= word;
    round();
    a ^= word;
  };
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    take(word);
  }
  uint64_t last = uint64_t{data.size()} << 56;
  for (size_t i = 0; i < left; ++i) last |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  take(last);
  c ^= 0xff;
  round(), round(), round();
  return a ^ b ^ c ^ d;
}

}  // namespace verbena::kv
