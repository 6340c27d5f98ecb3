#include "providers/soft/polled_completion_queue.h"

#include <algorithm>
#include <utility>

namespace verbena::soft {

PolledCompletionQueue::PolledCompletionQueue(std::shared_ptr<ProgressThread> progress, uint32_t depth,
                                             uint32_t busy_polls)
    : SoftCompletionQueue(depth), progress_(std::move(progress)), busy_polls_(busy_polls) {
  progress_->add(*this);
}

size_t PolledCompletionQueue::poll(std::span<Completion> out) {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (!is_polled() && polls - counted_from_.load(std::memory_order_relaxed) >= busy_polls_)
    begin_polled_mode();
  return SoftCompletionQueue::poll(out);
}

void PolledCompletionQueue::begin_polled_mode() {
  restart_count();
  if (!may_be_polled()) return;
  check_ms_.store(kFirstCheckMs, std::memory_order_relaxed);
  polled_.store(true, std::memory_order_relaxed);
  polling_changed(true);
  progress_->wake();  // from now on it calls check_pollers() every few milliseconds
}

void PolledCompletionQueue::arm(bool solicited_only) {
  SoftCompletionQueue::arm(solicited_only);
  restart_count();
  if (!is_polled()) return;
  polled_.store(false, std::memory_order_relaxed);
  polling_changed(false);
}

int PolledCompletionQueue::check_pollers() {
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  const bool is_still_polled = polls != polls_seen_ && may_be_polled();
  polls_seen_ = polls;
  if (!is_still_polled) {
    restart_count();
    polled_.store(false, std::memory_order_relaxed);
    return kFirstCheckMs;
  }
  const int next_ms = std::min(2 * check_ms_.load(std::memory_order_relaxed), kLastCheckMs);
  check_ms_.store(next_ms, std::memory_order_relaxed);
  return next_ms;
}

}  // namespace verbena::soft
