// Decides whether a call spins for its reply with the lock held (Node::spin_for_reply()). One late reply has
// no effect on the next call; each further one in a row doubles the number of calls that skip the spin.
// Depends on the standard library only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

class ReplySpinPolicy {
 public:
  static constexpr uint32_t kMaxSkipped = 63;

  bool should_spin() { return skip_ == 0 || --skip_ == 0; }
  void record_reply() { late_ = 0; }
  void record_late() { skip_ = late_ = std::min(2 * late_ + 1, kMaxSkipped); }

 private:
  uint32_t skip_ = 0, late_ = 0;
};

}  // namespace verbena::transport
