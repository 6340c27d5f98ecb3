// How threads and event loops wait on a router. No wake-up is lost, because
// - taking the event, arming and draining are one step under the pump lock: what the drain missed rings
// again;
// - a sleeper names its own eventfd under that lock, and whoever finishes its operation signals it;
// - whoever finishes an operation that an event loop watches, or takes an event that it needs, rings its
// bell;
//   the queue's own event would not do, as a wire may hand a completion to a poller without ringing.
#include <poll.h>

#include <algorithm>
#include <mutex>

#include "util/clock.h"
#include "verbs/router.h"

namespace verbena {
namespace {

constexpr uint64_t kSliceNs = 20'000'000;  // should a wire lose an event after all, it costs this much
constexpr int kPumpsPerClock = 8;          // reading the clock costs as much as an empty pump

const EventFd& thread_event() {
  thread_local const EventFd event;
  return event;
}

void sleep_on(int queue_fd, const EventFd& own, uint64_t timeout_ns) {
  pollfd fds[] = {{.fd = queue_fd, .events = POLLIN, .revents = 0},
                  {.fd = own.get(), .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000)};
  ::ppoll(fds, 2, &timeout, nullptr);  // an early return only makes the caller look again
  if (fds[1].revents & POLLIN) own.clear();
}

}  // namespace

template <typename Ready>
bool CompletionRouter::wait_until(Slot* slot, uint64_t deadline_ns, uint32_t spin_us, Ready ready) {
  pump();
  if (ready()) return true;
  uint64_t now = now_ns();
  const uint64_t spin_until = std::min(deadline_ns, now + uint64_t{spin_us} * 1000);
  for (; now < spin_until; now = now_ns()) {
    for (int i = 0; i < kPumpsPerClock; ++i) {
      pump();
      if (ready()) return true;
      cpu_relax();
    }
  }
  return now < deadline_ns && sleep_until(slot, deadline_ns, ready);
}

template <typename Ready>
bool CompletionRouter::sleep_until(Slot* slot, uint64_t deadline_ns, Ready ready) {
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
  bool is_ready = false;
  for (bool closed = false; !closed;) {
    {
      const std::lock_guard lock(pump_mutex_);
      closed = closed_;
      if (!closed) rearm();
    }
    is_ready = ready();
    const uint64_t now = now_ns();
    if (is_ready || now >= deadline_ns) break;
    if (!closed) sleep_on(cq_->fileno(), own, std::min(kSliceNs, deadline_ns - now));
  }
  const std::lock_guard lock(pump_mutex_);
  --sleepers_;
  if (slot) {
    slot->sleeper = nullptr;
  } else {
    std::erase(raw_sleepers_, &own);
  }
  own.clear();  // signalled between the last look and here
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
  if (bell_rung_ || (watched_done_.empty() && !(event_expected_ && (arrived_ || closed_)))) return;
  bell_rung_ = true;
  bell_.signal();
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
  if (std::exchange(bell_rung_, false)) bell_.clear();
  event_expected_ = false;
  if (!closed_) {
    cq_->acknowledge();
    drain();
    if (watched_ > 0 || sleepers_ > 0) {
      cq_->arm(false);
      drain();  // what came before the arming rings no bell
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
