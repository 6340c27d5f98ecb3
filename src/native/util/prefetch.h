// Hints to bring a cache line here before it is needed.
#pragma once

namespace verbena {

inline void prefetch(const void* line) { __builtin_prefetch(line, 0, 3); }

// In a state that can be written: another core's copy is gone by the time of the store.
inline void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // a no-op where it is not known
#else
  __builtin_prefetch(line, 1, 3);
#endif
}

}  // namespace verbena
