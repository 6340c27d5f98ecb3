#include "providers/soft/spun_completion_queue.h"

#include <algorithm>

namespace verbena::soft {

size_t SpunCompletionQueue::poll(std::span<Completion> out) {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (!is_polled() && polls - counted_from_.load(std::memory_order_relaxed) >= spinner_polls_) become_spun();
  return SoftCompletionQueue::poll(out);
}

void SpunCompletionQueue::become_spun() {
  count_from_here();
  if (!may_be_spun()) return;
  check_ms_.store(kFirstCheckMs, std::memory_order_relaxed);
  polled_.store(true, std::memory_order_relaxed);
  spinning_changed(true);
}

void SpunCompletionQueue::arm(bool solicited_only) {
  SoftCompletionQueue::arm(solicited_only);
  count_from_here();
  if (!is_polled()) return;
  polled_.store(false, std::memory_order_relaxed);
  spinning_changed(false);
}

int SpunCompletionQueue::check_pollers() {
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  const bool goes_on = polls != polls_seen_ && may_be_spun();
  polls_seen_ = polls;
  if (!goes_on) {
    count_from_here();
    polled_.store(false, std::memory_order_relaxed);
    return kFirstCheckMs;
  }
  const int next_ms = std::min(2 * check_ms_.load(std::memory_order_relaxed), kLastCheckMs);
  check_ms_.store(next_ms, std::memory_order_relaxed);
  return next_ms;
}

}  // namespace verbena::soft
