// The clock of the measuring loops: the cycle counter if it is constant and usable, else CLOCK_MONOTONIC. A
// reading costs a few nanoseconds; this cost is calibrated and subtracted from each sample.
// Depends on util/ only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "util/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace verbena::bench {

constexpr uint32_t kSpinsPerClock = 4096;  // turns of a waiting loop between two readings of the clock

// The thread may be preempted during calibration, for longer than all readings together. Both functions
// therefore measure several times and keep the least disturbed result.

// The cost of one reading, in ticks.
template <typename Ticks>
double reading_cost(Ticks&& ticks) {
  constexpr int kBatches = 64, kReadings = 64;
  double least = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const uint64_t first = ticks();
    uint64_t last = first;
    for (int i = 0; i < kReadings; ++i) last = ticks();
    least = std::min(least, static_cast<double>(last - first) / kReadings);
  }
  return least;
}

struct Instant {
  uint64_t wall_ns, ticks;
};

// Reads two clocks at the same moment.
template <typename Wall, typename Ticks>
Instant same_instant(Wall&& wall, Ticks&& ticks) {
  constexpr int kTries = 16;
  Instant best{};
  uint64_t least_gap = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = wall(), count = ticks(), after = wall();
    if (after - before >= least_gap) continue;
    least_gap = after - before;
    best = {before + (after - before) / 2, count};
  }
  return best;
}

class Timer {
 public:
  // Calibrated once per process, which takes about 20 ms.
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

 private:
  Timer() : counter_(constant_counter()) {
    const auto read = [this] { return ticks(); };
    if (counter_) {
      const Instant first = same_instant(now_ns, read);
      while (now_ns() - first.wall_ns < kCalibrationNs) {
      }
      const Instant last = same_instant(now_ns, read);
      ns_per_tick_ =
          static_cast<double>(last.wall_ns - first.wall_ns) / static_cast<double>(last.ticks - first.ticks);
    }
    reading_ticks_ = reading_cost(read);
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
