// Decides whether an idle loop polls again before it sleeps. A wake-up costs a client more than a request
// costs the loop; but polling takes the processor from other threads, possibly from the client.
// A pure computation: the loop reports what happened; no system calls, no clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::kv {

class SpinPolicy {
 public:
  static constexpr uint64_t kMinBackoffNs = 40'000'000, kMaxBackoffNs = 1'000'000'000;
  // Above this rate of preemptions, the kernel's own threads cannot be the only cause: they preempt some 250
  // times per second; a client with one thread more than there are processors does so 15,000 times.
  static constexpr uint64_t kContendedPerSecond = 2'000;

  bool should_spin() {
    if (is_contended_ || skips_left_ > 0) {
      skips_left_ -= skips_left_ > 0;
      return false;
    }
    return true;
  }
  void spin_succeeded() { skips_ = 0; }
  // After each failure in a row, more waits pass without polling.
  void spin_failed() {
    skips_ = std::min(2 * skips_ + 1, 255u);
    skips_left_ = skips_;
  }

  // Takes the thread's total of involuntary context switches (ru_nivcsw), once per tick. A thread that does
  // not poll is rarely preempted, so contention can only be measured by polling again for a tick after each
  // back-off.
  void update_preemptions(uint64_t times, uint64_t now_ns) {
    const uint64_t lost = times - preemptions_, passed_ns = now_ns - sampled_ns_;
    preemptions_ = times;
    sampled_ns_ = now_ns;
    if (is_contended_) {
      is_contended_ = now_ns < contended_until_ns_;
    } else if (lost > 1 && lost * 1'000'000'000 > kContendedPerSecond * passed_ns) {
      is_contended_ = true;
      backoff_ns_ = std::clamp(2 * backoff_ns_, kMinBackoffNs, kMaxBackoffNs);
      contended_until_ns_ = now_ns + backoff_ns_;
    } else {
      backoff_ns_ = 0;
    }
  }
  bool is_contended() const { return is_contended_; }

 private:
  unsigned skips_ = 0, skips_left_ = 0;
  bool is_contended_ = false;
  uint64_t preemptions_ = 0, sampled_ns_ = 0, backoff_ns_ = 0, contended_until_ns_ = 0;
};

}  // namespace verbena::kv
