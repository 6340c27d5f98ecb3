#include "bind/handle.h"

#include <pthread.h>

namespace verbena::bind {

std::atomic<uint32_t> fork_count{0};

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace verbena::bind
