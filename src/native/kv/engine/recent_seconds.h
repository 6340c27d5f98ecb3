// One value for each of the last eight seconds. Reads no clock: time is passed in.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::kv {

template <typename Second>
class RecentSeconds {
 public:
  Second& current() { return seconds_[now_ % kCount]; }
  const auto& all() const { return seconds_; }
  // Advances the time: values that are more than eight seconds old are reset.
  void pass(uint64_t now_ns) {
    const uint64_t now = now_ns / 1'000'000'000;
    const uint64_t passed = now > now_ ? std::min<uint64_t>(now - now_, kCount) : 0;
    now_ = std::max(now, now_);
    for (uint64_t i = 0; i < passed; ++i) seconds_[(now_ - i) % kCount] = {};
  }

 private:
  static constexpr size_t kCount = 8;
  std::array<Second, kCount> seconds_{};
  uint64_t now_ = 0;
};

}  // namespace verbena::kv
