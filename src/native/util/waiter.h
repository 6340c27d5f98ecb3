// Waiting for a condition in two phases: poll for a while without sleeping, then arm an event source, poll
// once more, and sleep until an event or the deadline. Arming before the last poll is what makes a wake-up
// impossible to lose: a change before arming is found by that poll, a change after it raises an event.
// Allocates nothing; polling, arming, sleeping and the clock are passed in. Depends on util/ only.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>

#include "util/clock.h"
#include "util/fd.h"

namespace verbena {

enum class WaitResult : uint8_t { found, timed_out, interrupted };

// Why a sleep ended: an event that has to be armed again, another reason to poll, or the end of waiting.
enum class Wake : uint8_t { rearm, poll, stop };

class Waiter {
 public:
  static constexpr int kPollsPerClock = 8;          // reading the clock costs as much as an empty poll
  static constexpr uint64_t kSliceNs = 20'000'000;  // bounds the delay if a wire loses an event

  // `deadline_ns` is a time of the clock passed to spin() and sleep(); kNever: no deadline.
  Waiter(uint64_t spin_ns, uint64_t deadline_ns) : spin_ns_(spin_ns), deadline_ns_(deadline_ns) {}

  // Polls at least once and for at most spin_ns (kNever: without end). True as soon as poll() is true.
  template <int polls_per_clock = kPollsPerClock, typename Poll, typename Clock = uint64_t (*)()>
  bool spin(Poll poll, Clock clock = now_ns) {
    if (poll()) return true;
    now_ns_ = clock();
    const uint64_t spin_end = spin_ns_ < kNever - now_ns_ ? now_ns_ + spin_ns_ : kNever;
    for (const uint64_t end = std::min(deadline_ns_, spin_end); now_ns_ < end; now_ns_ = clock()) {
      for (int i = 0; i < polls_per_clock; ++i) {
        if (poll()) return true;
      }
    }
    return false;
  }

  // False after a spin() that lasted until the deadline: there is no time left to sleep.
  bool may_sleep() const { return now_ns_ < deadline_ns_; }

  // Calls arm(), then poll() and sleep(timeout_ns) in turn, and arm() again after Wake::rearm. A sleep may
  // end early for any reason. `interrupted`: a sleep returned Wake::stop.
  template <typename Poll, typename Arm, typename Sleep, typename Clock = uint64_t (*)()>
  WaitResult sleep(Poll poll, Arm arm, Sleep sleep_for, Clock clock = now_ns) {
    for (Wake wake = Wake::rearm; wake != Wake::stop;) {
      if (wake == Wake::rearm) arm();
      if (poll()) return WaitResult::found;
      now_ns_ = clock();
      if (now_ns_ >= deadline_ns_) return WaitResult::timed_out;
      wake = sleep_for(std::min(kSliceNs, deadline_ns_ - now_ns_));
    }
    return WaitResult::interrupted;
  }

  // Both phases, for callers that need nothing between them.
  template <typename Poll, typename Arm, typename Sleep, typename Clock = uint64_t (*)()>
  WaitResult wait(Poll poll, Arm arm, Sleep sleep_for, Clock clock = now_ns) {
    if (spin(poll, clock)) return WaitResult::found;
    return may_sleep() ? sleep(poll, arm, sleep_for, clock) : WaitResult::timed_out;
  }

 private:
  const uint64_t spin_ns_, deadline_ns_;
  uint64_t now_ns_ = 0;
};

// The calling thread's own eventfd, by which another thread ends its sleep. The thread of a forked child gets
// another one than its parent has.
inline const EventFd& thread_event() {
  thread_local EventFd event;
  if (event.is_inherited()) [[unlikely]]
    event = EventFd();
  return event;
}

// Which of two descriptors became readable within `timeout_ns`. Both false: the time is over, or a signal
// came.
struct Readable {
  bool first = false, second = false;
};
inline Readable sleep_on(int first, int second, uint64_t timeout_ns) {
  pollfd fds[] = {{.fd = first, .events = POLLIN, .revents = 0},
                  {.fd = second, .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000)};
  ::ppoll(fds, 2, &timeout, nullptr);
  return {(fds[0].revents & POLLIN) != 0, (fds[1].revents & POLLIN) != 0};
}

}  // namespace verbena
