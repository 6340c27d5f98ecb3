// The present time in nanoseconds: of the monotonic clock, and since 1970.
// Depends on the standard library only.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace verbena {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();  // a deadline that does not come
constexpr uint64_t kMillisecond = 1'000'000;                       // in nanoseconds

inline uint64_t clock_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

inline uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline uint64_t unix_ns() { return clock_ns(CLOCK_REALTIME); }
inline uint64_t unix_ms() { return unix_ns() / kMillisecond; }

}  // namespace verbena
