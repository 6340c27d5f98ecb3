// The largest of what was noted in the last eight seconds. Time is passed in.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::kv {

class RecentMax {
 public:
  void note(uint64_t value) {
    if (value > seconds_[second_ % kSeconds]) seconds_[second_ % kSeconds] = value;
  }
  // What was noted more than eight seconds ago is forgotten.
  void pass(uint64_t now_ns) {
    const uint64_t second = now_ns / 1'000'000'000;
    const uint64_t passed = second > second_ ? std::min<uint64_t>(second - second_, kSeconds) : 0;
    for (uint64_t i = 1; i <= passed; ++i) seconds_[(second_ + i) % kSeconds] = 0;
    second_ = std::max(second, second_);
  }
  uint64_t value() const { return *std::max_element(seconds_.begin(), seconds_.end()); }

 private:
  static constexpr size_t kSeconds = 8;
  std::array<uint64_t, kSeconds> seconds_{};
  uint64_t second_ = 0;
};

}  // namespace verbena::kv
