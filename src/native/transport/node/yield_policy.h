// Decides when a spinning thread yields its core, and when it moves to another core. A thread that spins on
// the core of its own peer delays the reply it waits for, so it yields from time to time: less often while no
// other thread wants the core. If the core is shared on every yield, the thread moves, because the kernel may
// leave two runnable threads on one core for 10 ms or more although another core is idle. Computes only;
// times are nanoseconds of one clock.
// Depends on the standard library only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

class YieldPolicy {
 public:
  static constexpr uint64_t kMinIntervalNs = 4'000, kMaxIntervalNs = 64'000;
  // A yield that lets another thread run takes at least this long.
  static constexpr uint64_t kSharedYieldNs = 2'000;
  static constexpr uint32_t kMinSharedYields = 8, kMaxSharedYields = 4096;

  explicit YieldPolicy(uint64_t now) : yielded_ns_(now) {}

  bool should_yield(uint64_t now) const { return now - yielded_ns_ >= interval_ns_; }
  // Records a yield from `began` to `now`. True: the thread should move to another core.
  bool record_yield(uint64_t began, uint64_t now) {
    yielded_ns_ = now;
    if (now - began < kSharedYieldNs) {
      interval_ns_ = std::min(2 * interval_ns_, kMaxIntervalNs);
      shared_ = 0;
      shared_limit_ = std::max(shared_limit_ - 1, kMinSharedYields);
      return false;
    }
    interval_ns_ = kMinIntervalNs;
    if (++shared_ < shared_limit_) return false;
    shared_ = 0;
    shared_limit_ = std::min(2 * shared_limit_, kMaxSharedYields);  // every core may be busy
    return true;
  }
  // Other threads could run just now: this one slept, or moved to this core.
  void record_sleep(uint64_t now) { yielded_ns_ = now; }

 private:
  uint64_t yielded_ns_, interval_ns_ = kMinIntervalNs;
  uint32_t shared_ = 0, shared_limit_ = kMinSharedYields;  // yields in a row that let another thread run
};

}  // namespace verbena::transport
