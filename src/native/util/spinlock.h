// A lock for critical sections of a few dozen nanoseconds: spins, then yields, because the holder may need
// this core. Some wires make system calls inside a section, which take far longer: then the lock sleeps,
// because spinning would cost more than the section.
// Depends on the standard library and system calls only.
#pragma once

#include <sched.h>
#include <time.h>

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
      } else if (spins < kSpins + kYields) {
        sched_yield();  // the holder may be waiting for this core
      } else {
        constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 20'000};
        nanosleep(&kPause, nullptr);
      }
    }
  }

  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 128, kYields = 8;
  std::atomic<bool> held_{false};
};

}  // namespace verbena
