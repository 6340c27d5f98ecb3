// Counters and latency histograms: written under the node's lock, read by any thread at any time.
// Depends on the standard library only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

namespace verbena::transport {

// The one list of counters: their names are those of Python and of the metrics page.
#define VERBENA_TRANSPORT_COUNTERS(X) \
  X(send_ops)                         \
  X(recv_ops)                         \
  X(read_ops)                         \
  X(write_ops)                        \
  X(send_bytes)                       \
  X(recv_bytes)                       \
  X(read_bytes)                       \
  X(write_bytes)                      \
  X(completion_errors)                \
  X(retry_exceeded)                   \
  X(replayed_messages)                \
  X(repeated_messages)                \
  X(damaged_messages)                 \
  X(failed_calls)                     \
  X(links)

#define VERBENA_ENUMERATOR(name) name,
#define VERBENA_NAME(name) #name,
enum class Count : uint8_t { VERBENA_TRANSPORT_COUNTERS(VERBENA_ENUMERATOR) count_ };
constexpr std::string_view kCountNames[] = {VERBENA_TRANSPORT_COUNTERS(VERBENA_NAME)};
#undef VERBENA_NAME
#undef VERBENA_ENUMERATOR

// Logarithmic: four buckets per doubling, so that a quantile is within 19 % of the true value.
class Histogram {
 public:
  static constexpr size_t kBuckets = 160;

  void record(uint64_t value_ns) { add(buckets_[index(value_ns)], 1), add(sum_ns_, value_ns); }
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }
  uint64_t sum_ns() const { return sum_ns_.load(std::memory_order_relaxed); }

  static size_t index(uint64_t value_ns) {
    if (value_ns < 4) return static_cast<size_t>(value_ns);
    const auto log = static_cast<size_t>(std::bit_width(value_ns)) - 1;
    return std::min(kBuckets - 1, (log - 1) * 4 + ((value_ns >> (log - 2)) & 3));
  }
  // The exclusive upper bound of a bucket.
  static uint64_t upper_ns(size_t i) {
    const size_t next = i + 1;
    return next < 4 ? next : (uint64_t{4} + next % 4) << (next / 4 - 1);
  }

 private:
  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

// Counters of one session on one wire.
struct Metrics {
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::count_)> counts{};
  Histogram call, read, write;
  static constexpr std::pair<std::string_view, Histogram Metrics::*> kHistograms[] = {
      {"call", &Metrics::call}, {"read", &Metrics::read}, {"write", &Metrics::write}};

  void add(Count which, uint64_t n = 1) {
    auto& counter = counts[static_cast<size_t>(which)];
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

}  // namespace verbena::transport
