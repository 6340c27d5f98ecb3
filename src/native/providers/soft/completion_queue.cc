#include "providers/soft/completion_queue.h"

#include <algorithm>
#include <mutex>

namespace verbena::soft {

size_t SoftCompletionQueue::poll(std::span<Completion> out) {
  if (const size_t taken = take(out); taken > 0 || out.empty()) return taken;
  PollerSink sink{.queue = this, .room = out};
  visit_members([&sink](Progressor& member) { member.progress(sink); });
  return sink.taken + take(out.subspan(sink.taken));
}

size_t SoftCompletionQueue::take(std::span<Completion> out) {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(ring_lock_);
  const size_t count = count_.load(std::memory_order_relaxed);
  const size_t taken = std::min(count, out.size());
  for (size_t i = 0; i < taken; ++i) {
    Entry& entry = ring_[head_];
    out[i] = entry.completion;
    if (entry.unpolled) entry.unpolled->fetch_sub(1, std::memory_order_relaxed);
    entry.unpolled.reset();
    if (++head_ == ring_.size()) head_ = 0;
  }
  count_.store(count - taken, std::memory_order_release);
  return taken;
}

void SoftCompletionQueue::grow() {
  std::vector<Entry> larger(std::min<size_t>(depth_, 2 * ring_.size()));
  std::rotate(ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(head_), ring_.end());
  std::move(ring_.begin(), ring_.end(), larger.begin());
  ring_.swap(larger);
  head_ = 0;
}

bool SoftCompletionQueue::enqueue(const Completion& completion, bool solicited,
                                  const UnpolledCount& unpolled) {
  bool ring_bell = false;
  {
    const std::lock_guard lock(ring_lock_);
    const size_t count = count_.load(std::memory_order_relaxed);
    if (count == depth_) {
      overrun_.store(true, std::memory_order_relaxed);
      return false;
    }
    if (count == ring_.size()) grow();
    size_t tail = head_ + count;
    if (tail >= ring_.size()) tail -= ring_.size();
    ring_[tail] = {completion, unpolled};
    if (unpolled) unpolled->fetch_add(1, std::memory_order_relaxed);
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
