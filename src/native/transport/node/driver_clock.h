// DriverClock: the time during which a node could receive. A driver that was late, because the machine was
// busy or the process was stopped, must not take its own lateness for the silence of its peers.
// Depends on the standard library only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

class DriverClock {
 public:
  // `max_step_ns`: a longer time between two calls counts as this much.
  explicit DriverClock(uint64_t max_step_ns) : max_step_ns_(max_step_ns) {}

  // Call it in each turn of the driver with the time; returns that of this clock, which is never 0.
  uint64_t advance(uint64_t now_ns) {
    if (last_ns_ != 0) time_ns_ += std::min(now_ns - last_ns_, max_step_ns_);
    last_ns_ = now_ns;
    return time_ns_;
  }

 private:
  const uint64_t max_step_ns_;
  uint64_t last_ns_ = 0, time_ns_ = 1;
};

}  // namespace verbena::transport
