// A lock for sections of a few dozen nanoseconds: spins, then yields, since two vCPUs may be all there is.
#pragma once

#include <sched.h>

#include <atomic>

namespace verbena {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

class Spinlock {
 public:
  bool try_lock() {
    return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire);
  }

  void lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      if (spins < kSpins) {
        cpu_relax();
      } else {
        sched_yield();  // the holder may be waiting for this very core
      }
    }
  }

  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 128;
  std::atomic<bool> held_{false};
};

}  // namespace verbena
