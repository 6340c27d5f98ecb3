// Waiting of threads and event loops on a router. No wake-up is lost, because
// - consuming the event, arming and draining are one step under pump_mutex_: a completion that the drain
//   missed raises a new event;
// - a sleeping thread stores its own eventfd under pump_mutex_, and the thread that finishes its operation
//   signals it;
// - a thread that finishes an operation watched by an event loop, or consumes an event that the loop needs,
//   signals wakeup_fileno(). The queue's own event is not enough: a wire may give a completion to a polling
//   thread without raising an event.
#include <algorithm>
#include <mutex>

#include "util/waiter.h"
#include "verbs/router.h"

namespace verbena {

template <typename Ready>
bool CompletionRouter::wait_until(Slot* slot, uint64_t deadline_ns, uint32_t spin_us, Ready ready) {
  Waiter waiter(uint64_t{spin_us} * 1000, deadline_ns);
  const auto poll = [&] {
    pump();
    if (ready()) return true;
    cpu_relax();
    return false;
  };
  if (waiter.spin(poll)) return true;
  return waiter.may_sleep() && sleep_until(slot, waiter, ready);
}

template <typename Ready>
bool CompletionRouter::sleep_until(Slot* slot, Waiter& waiter, Ready ready) {
  const EventFd& own = thread_event();
  {
    const std::lock_guard lock(pump_mutex_);
    ++sleepers_;
    if (slot) {
      slot->sleeper = &own;
    } else {
      raw_sleepers_.push_back(&own);
    }
  }
  bool is_closed = false;
  const auto arm = [&] {
    const std::lock_guard lock(pump_mutex_);
    is_closed = closed_;
    if (!is_closed) rearm();
  };
  const auto sleep = [&](uint64_t timeout_ns) {
    if (is_closed) return Wake::stop;
    if (sleep_on(cq_->fileno(), own.get(), timeout_ns).second) own.clear();
    return Wake::rearm;  // after every wake-up: close() signals `own` too, and a wire may have lost an event
  };
  const bool is_ready = waiter.sleep(ready, arm, sleep) == WaitResult::found;
  const std::lock_guard lock(pump_mutex_);
  --sleepers_;
  if (slot) {
    slot->sleeper = nullptr;
  } else {
    std::erase(raw_sleepers_, &own);
  }
  own.clear();  // it may have been signalled since the last poll
  return is_ready;
}

bool CompletionRouter::wait(uint64_t id, uint64_t deadline_ns, uint32_t spin_us) {
  Slot* slot = find(id);
  if (!slot) return false;
  return wait_until(slot, deadline_ns, spin_us,
                    [slot] { return slot->state.load(std::memory_order_acquire) == State::done; });
}

bool CompletionRouter::wait_batch(uint64_t id, uint64_t count, uint64_t deadline_ns, uint32_t spin_us) {
  Slot* slot = find(id);
  return wait_until(slot, deadline_ns, spin_us,
                    [slot, count] { return slot->batch.reached.load(std::memory_order_acquire) >= count; });
}

size_t CompletionRouter::wait_raw(std::span<Completion> out, uint64_t deadline_ns, uint32_t spin_us) {
  size_t count = 0;
  wait_until(nullptr, deadline_ns, spin_us, [&] { return (count = poll_raw(out)) > 0; });
  return count;
}

void CompletionRouter::rearm() {
  cq_->acknowledge();
  cq_->arm(false);
  drain();
  wake_loop();
}

void CompletionRouter::wake_loop() {
  if (wakeup_signalled_ || (watched_done_.empty() && !(event_expected_ && (arrived_ || closed_)))) return;
  wakeup_signalled_ = true;
  wakeup_.signal();
}

void CompletionRouter::arm(bool solicited_only) {
  const std::lock_guard lock(pump_mutex_);
  if (!closed_) cq_->arm(solicited_only && sleepers_ == 0 && watched_ == 0 && !event_expected_);
}

void CompletionRouter::acknowledge() {
  const std::lock_guard lock(pump_mutex_);
  if (closed_) return;
  if (sleepers_ == 0 && watched_ == 0 && !event_expected_) return cq_->acknowledge();
  rearm();
}

bool CompletionRouter::watch(uint64_t id, Completion& out) {
  const std::lock_guard lock(pump_mutex_);
  Slot* slot = find(id);
  if (!closed_) {
    cq_->arm(false);
    drain();
    wake_loop();
  }
  if (slot->state.load(std::memory_order_acquire) == State::done) {
    out = slot->completion;
    free_slot(id, *slot);
    return true;
  }
  slot->state.store(State::watched, std::memory_order_relaxed);
  ++watched_;
  return false;
}

void CompletionRouter::expect_event() {
  const std::lock_guard lock(pump_mutex_);
  event_expected_ = true;
  arrived_ = false;
  if (!closed_) cq_->arm(false);
}

void CompletionRouter::drain_watched(std::vector<Completion>& out) {
  const std::lock_guard lock(pump_mutex_);
  if (std::exchange(wakeup_signalled_, false)) wakeup_.clear();
  event_expected_ = false;
  if (!closed_) {
    cq_->acknowledge();
    drain();
    if (watched_ > 0 || sleepers_ > 0) {
      cq_->arm(false);
      drain();  // completions that arrived before arming raise no event
    }
  }
  out.insert(out.end(), watched_done_.begin(), watched_done_.end());
  watched_done_.clear();
}

void CompletionRouter::close() {
  const std::lock_guard lock(pump_mutex_);
  closed_ = true;
  for (const EventFd* sleeper : raw_sleepers_) sleeper->signal();
  wake_loop();
}

}  // namespace verbena
