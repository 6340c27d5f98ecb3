#include "providers/soft/spun_completion_queue.h"

#include <algorithm>

namespace verbena::soft {

size_t SpunCompletionQueue::poll(std::span<Completion> out) {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (!is_polled() && polls % spinner_polls_ == 0 && may_be_spun()) {
    polled_.store(true, std::memory_order_relaxed);
    spinning_changed(true);
  }
  return SoftCompletionQueue::poll(out);
}

void SpunCompletionQueue::arm(bool solicited_only) {
  SoftCompletionQueue::arm(solicited_only);
  if (!is_polled()) return;
  polled_.store(false, std::memory_order_relaxed);
  spinning_changed(false);
}

int SpunCompletionQueue::check_pollers() {
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  const bool goes_on = polls != polls_seen_ && may_be_spun();
  if (!goes_on) polled_.store(false, std::memory_order_relaxed);
  polls_seen_ = polls;
  check_ms_ = goes_on ? std::min(2 * check_ms_, kLastCheckMs) : kFirstCheckMs;
  return check_ms_;
}

}  // namespace verbena::soft
