// Whether a loop with nothing to do looks again before it sleeps. Waking it costs a client more than a
// request costs the loop; but looking takes the processor from whoever else wants it, the client perhaps.
// Computes only: the loop tells it what happened.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::kv {

class SpinPolicy {
 public:
  static constexpr uint64_t kMinBackoffNs = 40'000'000, kMaxBackoffNs = 1'000'000'000;
  // More often a second than this, it is not the kernel's own threads that take the processor: they do so
  // some 250 times, a client with one thread more than there are processors 15,000 times.
  static constexpr uint64_t kContendedPerSecond = 2'000;

  bool should_spin() {
    if (is_contended_ || skips_left_ > 0) {
      skips_left_ -= skips_left_ > 0;
      return false;
    }
    return true;
  }
  void spin_succeeded() { skips_ = 0; }
  // The more often it was in vain, the rarer it is tried.
  void spin_failed() {
    skips_ = std::min(2 * skips_ + 1, 255u);
    skips_left_ = skips_;
  }

  // How often the thread has lost its processor to others so far (ru_nivcsw); asked for at every tick.
  // Without looking it loses it rarely, so now and then a tick is spent on trying.
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
