// The largest value that was noted in the last eight seconds. Reads no clock: time is passed in.
#pragma once

#include "kv/engine/recent_seconds.h"

namespace verbena::kv {

class RecentMax {
 public:
  void note(uint64_t value) { seconds_.current() = std::max(value, seconds_.current()); }
  void pass(uint64_t now_ns) { seconds_.pass(now_ns); }
  uint64_t value() const { return *std::max_element(seconds_.all().begin(), seconds_.all().end()); }

 private:
  RecentSeconds<uint64_t> seconds_;
};

}  // namespace verbena::kv
