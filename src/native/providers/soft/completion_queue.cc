#include "providers/soft/completion_queue.h"

#include <algorithm>
#include <mutex>

namespace verbena::soft {

size_t SoftCompletionQueue::poll(std::span<Completion> out) {
  size_t taken = take(out);
  if (taken == out.size()) return taken;
  visit_members([](Progressor& member) { member.progress(); });
  return taken + take(out.subspan(taken));
}

size_t SoftCompletionQueue::take(std::span<Completion> out) {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(ring_lock_);
  const size_t count = count_.load(std::memory_order_relaxed);
  const size_t taken = std::min(count, out.size());
  for (size_t i = 0; i < taken; ++i) {
    out[i] = ring_entries_[head_];
    if (++head_ == ring_entries_.size()) head_ = 0;
  }
  count_.store(count - taken, std::memory_order_release);
  return taken;
}

bool SoftCompletionQueue::push(const Completion& completion, bool solicited) {
  bool ring_bell = false;
  {
    const std::lock_guard lock(ring_lock_);
    const size_t count = count_.load(std::memory_order_relaxed);
    if (count == ring_entries_.size()) {
      overrun_.store(true, std::memory_order_relaxed);
      return false;
    }
    size_t tail = head_ + count;
    if (tail >= ring_entries_.size()) tail -= ring_entries_.size();
    ring_entries_[tail] = completion;
    count_.store(count + 1, std::memory_order_release);
    if (armed_ == Armed::any ||
        (armed_ == Armed::solicited && (solicited || completion.status != Status::success))) {
      armed_ = Armed::no;
      ring_bell = true;
    }
  }
  if (ring_bell) event_.signal();
  return true;
}

void SoftCompletionQueue::arm(bool solicited_only) {
  const std::lock_guard lock(ring_lock_);
  // Arming for everything wins over arming for solicited events, as in verbs.
  if (armed_ != Armed::any) armed_ = solicited_only ? Armed::solicited : Armed::any;
}

void SoftCompletionQueue::attach(Progressor& member) {
  const std::lock_guard lock(members_lock_);
  members_.push_back(&member);
}

void SoftCompletionQueue::detach(Progressor& member) {
  const std::lock_guard lock(members_lock_);
  std::erase(members_, &member);
}

}  // namespace verbena::soft
