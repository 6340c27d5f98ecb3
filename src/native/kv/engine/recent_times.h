// A histogram of durations over the last eight seconds. Reads no clock: time is passed in.
#pragma once

#include "kv/engine/recent_seconds.h"
#include "transport/node/metrics.h"

namespace verbena::kv {

class RecentTimes {
 public:
  using Buckets = std::array<uint32_t, transport::Histogram::kBuckets>;

  void note(uint64_t took_ns) { ++seconds_.current()[transport::Histogram::index(took_ns)]; }
  void pass(uint64_t now_ns) { seconds_.pass(now_ns); }
  Buckets buckets() const {
    Buckets sum{};
    for (const Buckets& second : seconds_.all()) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
    }
    return sum;
  }

 private:
  RecentSeconds<Buckets> seconds_;
};

}  // namespace verbena::kv
