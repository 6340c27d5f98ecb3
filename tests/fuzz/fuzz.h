// What fuzz targets share. A target is one file here: LLVMFuzzerTestOneInput() takes a script of small
// decisions (Input) and plays it to a parser or state machine; SEED("a-name") writes such a script (Script)
// for the corpus; REQUIRE states what must hold whatever a peer sends. See README.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace fuzz {

using Bytes = std::vector<std::byte>;

// The fuzzer's bytes, read as decisions; zeroes when they have run out.
class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : left_(bytes, size) {}

  bool empty() const { return left_.empty(); }
  template <typename T>
  T number() {
    T value{};
    const size_t n = std::min(sizeof value, left_.size());
    if (n > 0) std::memcpy(&value, left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }
  uint8_t byte() { return number<uint8_t>(); }
  Bytes take(size_t size) {
    const auto some = std::as_bytes(left_.first(std::min(size, left_.size())));
    left_ = left_.subspan(some.size());
    return {some.begin(), some.end()};
  }
  Bytes rest() { return take(left_.size()); }

 private:
  std::span<const uint8_t> left_;
};

// The same from the other side: writes what Input reads.
class Script {
 public:
  template <typename T>
  Script& number(T value) {
    return add(&value, sizeof value);
  }
  Script& byte(unsigned value) { return number(static_cast<uint8_t>(value)); }
  Script& add(const void* bytes, size_t size) {
    const auto* from = static_cast<const uint8_t*>(bytes);
    bytes_.insert(bytes_.end(), from, from + size);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

struct Seed {
  const char* name;
  void (*write)(Script&);
};

inline std::vector<Seed>& seeds() {
  static std::vector<Seed> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*write)(Script&)) { seeds().push_back({name, write}); }
};

[[noreturn]] inline void violated(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

// Memory of exactly this size on the heap: one byte beyond it is the sanitizer's.
inline Bytes pattern(size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

}  // namespace fuzz

#define FUZZ_JOIN2(a, b) a##b
#define FUZZ_JOIN(a, b) FUZZ_JOIN2(a, b)
#define SEED(name) FUZZ_SEED(name, FUZZ_JOIN(seed_, __LINE__))
#define FUZZ_SEED(name, id)                                             \
  static void id(fuzz::Script& script);                                 \
  static const fuzz::Registration FUZZ_JOIN(id, _registered)(name, id); \
  static void id(fuzz::Script& script)
#define REQUIRE(what) ((what) ? void() : fuzz::violated(__FILE__, __LINE__, #what))
