// The table of tracked operations, and dispatching each completion to its owner. Waiting: router_wait.cc.
#include "verbs/router.h"

#include <algorithm>
#include <utility>

namespace verbena {

CompletionRouter::CompletionRouter(std::shared_ptr<CompletionQueue> cq) : cq_(std::move(cq)) {}

CompletionRouter::Slot* CompletionRouter::find(uint64_t id) const {
  const uint64_t index = id & kIndexMask;
  if (index / kSegmentSlots >= kMaxSegments) return nullptr;
  Slot* segment = segments_[index / kSegmentSlots].get();
  if (!segment) return nullptr;
  Slot& slot = segment[index % kSegmentSlots];
  const uint64_t generation = slot.generation.load(std::memory_order_relaxed);
  return generation == ((id >> kGenerationShift) & kGenerationMask) ? &slot : nullptr;
}

uint64_t CompletionRouter::id_of(const Slot& slot, size_t index) const {
  return kTrackedBit | (uint64_t{slot.generation.load(std::memory_order_relaxed)} << kGenerationShift) |
         index;
}

uint64_t CompletionRouter::begin(uint32_t qp_num, bool batch) {
  const std::lock_guard lock(table_lock_);
  if (first_free_ == kNoSlot) {
    if (segment_count_ == kMaxSegments) return 0;
    auto segment = std::make_unique<Slot[]>(kSegmentSlots);
    const size_t base = segment_count_ * kSegmentSlots;
    for (size_t i = kSegmentSlots; i-- > 0;) {
      segment[i].next_free = first_free_;
      first_free_ = static_cast<uint32_t>(base + i);
    }
    segments_[segment_count_++] = std::move(segment);
  }
  const uint32_t index = first_free_;
  Slot& slot = segments_[index / kSegmentSlots][index % kSegmentSlots];
  first_free_ = slot.next_free;
  slot.qp_num.store(qp_num, std::memory_order_relaxed);
  slot.is_batch = batch;
  if (batch) {
    slot.batch.reached.store(0, std::memory_order_relaxed);
    slot.batch.failed.store(kNever, std::memory_order_relaxed);
    slot.goal = kNever;
  }
  slot.state.store(State::pending, std::memory_order_release);
  tracked_.fetch_add(1, std::memory_order_relaxed);
  return id_of(slot, index);
}

void CompletionRouter::free_slot(uint64_t id, Slot& slot) {
  const std::lock_guard lock(table_lock_);
  slot.state.store(State::free, std::memory_order_relaxed);
  slot.generation.fetch_add(1, std::memory_order_relaxed);  // late completions and stale ids match no slot
  slot.next_free = first_free_;
  first_free_ = static_cast<uint32_t>(id & kIndexMask);
  tracked_.fetch_sub(1, std::memory_order_relaxed);
}

void CompletionRouter::release(uint64_t id) {
  const std::lock_guard lock(pump_mutex_);  // forget_qp() may be reading the slot
  if (Slot* slot = find(id)) free_slot(id, *slot);
}

bool CompletionRouter::finished(uint64_t id) const {
  const Slot* slot = find(id);
  return slot && slot->state.load(std::memory_order_acquire) == State::done;
}

bool CompletionRouter::take(uint64_t id, Completion& out) {
  Slot* slot = find(id);
  if (!slot || slot->state.load(std::memory_order_acquire) != State::done) return false;
  out = slot->completion;
  free_slot(id, *slot);
  return true;
}

void CompletionRouter::abandon(uint64_t id, std::shared_ptr<void> keep) {
  const std::lock_guard lock(pump_mutex_);
  Slot* slot = find(id);
  if (!slot) return;  // it has finished and been drained since
  const State state = slot->state.load(std::memory_order_acquire);
  if (state == State::done) return free_slot(id, *slot);
  if (state == State::watched) --watched_;
  slot->keep = std::move(keep);
  slot->state.store(State::abandoned, std::memory_order_relaxed);
}

std::vector<std::shared_ptr<void>> CompletionRouter::take_dropped() {
  const std::lock_guard lock(pump_mutex_);
  has_dropped_.store(false, std::memory_order_relaxed);
  return std::exchange(dropped_, {});
}

void CompletionRouter::pump() {
  const std::unique_lock lock(pump_mutex_, std::try_to_lock);
  if (!lock) return;
  drain();
  wake_loop();
}

void CompletionRouter::drain() {
  if (closed_) return;
  const bool raw_before = !raw_.empty();
  for (size_t count = polled_.size(); count == polled_.size();) {
    count = cq_->poll(polled_);
    if (count > 0) arrived_ = true;
    for (const Completion& completion : std::span(polled_).first(count)) {
      if (completion.id & kTrackedBit) {
        dispatch(completion);
      } else {
        raw_.push_back(completion);
      }
    }
  }
  if (!raw_before && !raw_.empty()) {
    for (const EventFd* sleeper : raw_sleepers_) sleeper->signal();
  }
}

void CompletionRouter::dispatch(const Completion& completion) {
  Slot* slot = find(completion.id);
  if (!slot) return;
  if (slot->is_batch) {
    progress_batch(*slot, completion);
  } else {
    finish(*slot, completion);
  }
}

void CompletionRouter::finish(Slot& slot, const Completion& completion) {
  switch (slot.state.load(std::memory_order_relaxed)) {
    case State::pending: {
      // The release store gives the slot to its waiter, which may free it at once: do not access the slot
      // afterwards. The sleeper's eventfd stays valid, because a sleeper leaves its slot only under
      // pump_mutex_.
      const EventFd* sleeper = slot.sleeper;
      slot.completion = completion;
      slot.state.store(State::done, std::memory_order_release);
      if (sleeper) sleeper->signal();
      return;
    }
    case State::watched:
      watched_done_.push_back(completion);
      --watched_;
      return free_slot(completion.id, slot);
    case State::abandoned:
      if (slot.keep) {
        dropped_.push_back(std::move(slot.keep));
        has_dropped_.store(true, std::memory_order_relaxed);
      }
      return free_slot(completion.id, slot);
    case State::done:
    case State::free:
      return;
  }
}

void CompletionRouter::progress_batch(Slot& slot, const Completion& completion) {
  // A send queue completes its requests in order, so one completion confirms all before it. The sequence
  // number is the low part of the index, which is less than one send queue ahead of `reached`.
  const uint64_t reached = slot.batch.reached.load(std::memory_order_relaxed);
  const uint64_t sequence = (completion.id & ~kTrackedBit) >> kSequenceShift;
  const uint64_t ahead = (sequence - reached) & kSequenceMask;
  if (ahead > kSequenceMask / 2) return;  // behind: a later completion has confirmed it already
  const uint64_t index = reached + ahead;
  if (completion.status != Status::success && slot.batch.failed.load(std::memory_order_relaxed) == kNever) {
    slot.batch.first_error = completion;
    slot.batch.failed.store(index, std::memory_order_release);
  }
  slot.batch.reached.store(index + 1, std::memory_order_release);
  if (slot.sleeper) slot.sleeper->signal();
  if (slot.state.load(std::memory_order_relaxed) == State::abandoned && index + 1 >= slot.goal) {
    finish(slot, completion);
  }
}

void CompletionRouter::end_batch(uint64_t id, uint64_t posted, std::shared_ptr<void> keep) {
  const std::lock_guard lock(pump_mutex_);
  Slot* slot = find(id);
  if (!keep || slot->batch.reached.load(std::memory_order_relaxed) >= posted) return free_slot(id, *slot);
  slot->goal = posted;
  slot->keep = std::move(keep);
  slot->state.store(State::abandoned, std::memory_order_relaxed);
}

void CompletionRouter::forget_qp(uint32_t qp_num) {
  const std::lock_guard lock(pump_mutex_);
  // Without tracked operations the queue is not polled: other code may be polling it without this router.
  if (tracked_.load(std::memory_order_relaxed) == 0) return;
  drain();  // operations that have completed keep their own status
  size_t slots;
  {
    const std::lock_guard table(table_lock_);
    slots = segment_count_ * kSegmentSlots;
  }
  for (size_t index = 0; index < slots; ++index) {
    Slot& slot = segments_[index / kSegmentSlots][index % kSegmentSlots];
    const State state = slot.state.load(std::memory_order_acquire);
    if (state == State::free || state == State::done) continue;
    if (slot.qp_num.load(std::memory_order_relaxed) != qp_num) continue;
    const Completion flushed{.id = id_of(slot, index), .status = Status::wr_flush_err, .qp_num = qp_num};
    if (slot.is_batch && state == State::pending) {  // run_batch() frees it, once it sees `reached`
      if (slot.batch.failed.load(std::memory_order_relaxed) == kNever) {
        slot.batch.first_error = flushed;
        slot.batch.failed.store(slot.batch.reached.load(std::memory_order_relaxed),
                                std::memory_order_release);
      }
      slot.batch.reached.store(kNever, std::memory_order_release);
      if (slot.sleeper) slot.sleeper->signal();
    } else {
      finish(slot, flushed);
    }
  }
  wake_loop();
}

size_t CompletionRouter::poll_raw(std::span<Completion> out) {
  const std::lock_guard lock(pump_mutex_);
  size_t filled = 0;
  for (; filled < out.size() && !raw_.empty(); raw_.pop_front()) out[filled++] = raw_.front();
  while (filled < out.size() && !closed_) {
    const std::span<Completion> rest = out.subspan(filled);
    const size_t count = cq_->poll(rest);
    if (count > 0) arrived_ = true;
    for (const Completion& completion : rest.first(count)) {
      if (completion.id & kTrackedBit) {
        dispatch(completion);
      } else {
        out[filled++] = completion;  // never ahead of the completion being read from `rest`
      }
    }
    if (count < rest.size()) break;
  }
  wake_loop();
  return filled;
}

}  // namespace verbena
