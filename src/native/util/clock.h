// Monotonic time in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace verbena {

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace verbena
