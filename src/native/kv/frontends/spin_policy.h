// Whether a loop with nothing to do looks again before it sleeps. Waking it costs a client more than a
// request costs the loop; but looking takes the processor from whoever else wants it, the client perhaps.
// Computes only: the loop tells it what happened.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::kv {

class SpinPolicy {
 public:
  static constexpr uint64_t kShortestNs = 40'000'000, kLongestNs = 1'000'000'000;
  // More often a second than this, it is not the kernel's own threads that take the processor: they do so
  // some 250 times, a client with one thread more than there are processors 15,000 times.
  static constexpr uint64_t kCrowded = 2'000;

  bool looks() {
    if (is_crowded_ || left_out_ > 0) {
      left_out_ -= left_out_ > 0;
      return false;
    }
    return true;
  }
  void found() { in_vain_ = 0; }
  // The more often it was in vain, the rarer it is tried.
  void found_nothing() {
    in_vain_ = std::min(2 * in_vain_ + 1, 255u);
    left_out_ = in_vain_;
  }

  // How often the thread has lost its processor to others so far (ru_nivcsw); asked for at every tick.
  // Without looking it loses it rarely, so now and then a tick is spent on trying.
  void lost_processor(uint64_t times, uint64_t now_ns) {
    const uint64_t lost = times - lost_, passed_ns = now_ns - counted_ns_;
    lost_ = times;
    counted_ns_ = now_ns;
    if (is_crowded_) {
      is_crowded_ = now_ns < until_ns_;
    } else if (lost > 1 && lost * 1'000'000'000 > kCrowded * passed_ns) {
      is_crowded_ = true;
      for_ns_ = std::clamp(2 * for_ns_, kShortestNs, kLongestNs);
      until_ns_ = now_ns + for_ns_;
    } else {
      for_ns_ = 0;
    }
  }
  bool is_crowded() const { return is_crowded_; }

 private:
  unsigned in_vain_ = 0, left_out_ = 0;
  bool is_crowded_ = false;
  uint64_t lost_ = 0, counted_ns_ = 0, for_ns_ = 0, until_ns_ = 0;
};

}  // namespace verbena::kv
