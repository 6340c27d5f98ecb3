// Whether answers come at once: see Node::is_answered_at_once(). One that was held up says little; the more
// in a row, the more calls do not try.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::transport {

class Promptness {
 public:
  static constexpr uint32_t kMostUntried = 63;

  bool tries() { return untried_ == 0 || --untried_ == 0; }
  void prompt() { late_ = 0; }
  void late() { untried_ = late_ = std::min(2 * late_ + 1, kMostUntried); }

 private:
  uint32_t untried_ = 0, late_ = 0;
};

}  // namespace verbena::transport
