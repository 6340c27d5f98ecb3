// The measuring clock: the cycle counter where it is constant and usable, else CLOCK_MONOTONIC.
// A reading costs a few nanoseconds, and its own cost is known, so that it can be taken off a sample.
#pragma once

#include <cstdint>

#include "util/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace verbena::bench {

class Timer {
 public:
  // Calibrated once per process, in about 20 ms.
  static const Timer& instance() {
    static const Timer timer;
    return timer;
  }

  uint64_t ticks() const {
#if defined(__x86_64__)
    if (counter_) return __rdtsc();
#endif
    return now_ns();
  }

  // Nanoseconds per round of `rounds` rounds between two readings, without the cost of one reading.
  double per_round_ns(uint64_t start, uint64_t end, uint32_t rounds) const {
    const double spent = static_cast<double>(end - start) - reading_ticks_;
    return (spent > 0 ? spent : 0) * ns_per_tick_ / rounds;
  }

  bool uses_counter() const { return counter_; }
  double reading_ns() const { return reading_ticks_ * ns_per_tick_; }

 private:
  Timer() : counter_(constant_counter()) {
    if (counter_) {
      const uint64_t wall = now_ns(), first = ticks();
      while (now_ns() - wall < kCalibrationNs) {
      }
      const uint64_t last = ticks();
      ns_per_tick_ = static_cast<double>(now_ns() - wall) / static_cast<double>(last - first);
    }
    constexpr int kReadings = 4096;
    const uint64_t first = ticks();
    uint64_t last = first;
    for (int i = 0; i < kReadings; ++i) last = ticks();
    reading_ticks_ = static_cast<double>(last - first) / kReadings;
  }

  static bool constant_counter() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;  // "invariant TSC"
#else
    return false;
#endif
  }

  static constexpr uint64_t kCalibrationNs = 20'000'000;
  bool counter_;
  double ns_per_tick_ = 1;
  double reading_ticks_ = 0;
};

}  // namespace verbena::bench
