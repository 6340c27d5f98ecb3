// Prefetches a cache line. Written in assembly, because the compiler removes calls of a function that
// contains only __builtin_prefetch().
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

// For writing: other cores' copies are invalidated before the store.
inline void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // a no-op on CPUs without it
#elif defined(__aarch64__)
  asm volatile("prfm pstl1keep, %0" ::"Q"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1, 3);
  asm volatile("");
#endif
}

}  // namespace verbena
