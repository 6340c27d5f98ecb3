// Hints to bring a cache line here before it is needed. By instructions of our own: to the compiler a
// function that does nothing but __builtin_prefetch() has no effect, and it leaves out calls of it.
#pragma once

namespace verbena {

inline void prefetch(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" ::"m"(*static_cast<const char*>(line)));
#elif defined(__aarch64__)
  asm volatile("prfm pldl1keep, %0" ::"Q"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 0, 3);
  asm volatile("");
#endif
}

// In a state that can be written: another core's copy is gone by the time of the store.
inline void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // a no-op where it is not known
#elif defined(__aarch64__)
  asm volatile("prfm pstl1keep, %0" ::"Q"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1, 3);
  asm volatile("");
#endif
}

}  // namespace verbena
