// When a thread that spins gives its core to others, and when it goes to another one. Who spins on the core
// that its peer was put on too keeps it from answering: it lets others run now and then, more rarely if
// nobody wants to. If somebody always does, it goes to another core: by itself the kernel lets two that are
// awake share theirs for 10 ms and more, though another is idle. Times are nanoseconds of one clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

class SpinRule {
 public:
  static constexpr uint64_t kShortestNs = 4'000, kLongestNs = 64'000;
  static constexpr uint64_t kAloneNs = 2'000;  // giving the core to somebody and getting it back takes longer
  static constexpr uint32_t kLeastPatience = 8, kMostPatience = 4096;

  explicit SpinRule(uint64_t now) : yielded_ns_(now) {}

  bool should_yield(uint64_t now) const { return now - yielded_ns_ >= pause_ns_; }
  // It began to yield, and had the core again. True: it should go to another one.
  bool yielded(uint64_t began, uint64_t now) {
    yielded_ns_ = now;
    if (now - began < kAloneNs) {
      pause_ns_ = std::min(2 * pause_ns_, kLongestNs);
      shared_ = 0;
      patience_ = std::max(patience_ - 1, kLeastPatience);
      return false;
    }
    pause_ns_ = kShortestNs;
    if (++shared_ < patience_) return false;
    shared_ = 0;
    patience_ = std::min(2 * patience_, kMostPatience);  // every core may be busy
    return true;
  }
  // Others could run just now: it slept, or came to this core.
  void rested(uint64_t now) { yielded_ns_ = now; }

 private:
  uint64_t yielded_ns_, pause_ns_ = kShortestNs;
  uint32_t shared_ = 0, patience_ = kLeastPatience;
};

}  // namespace verbena::transport
