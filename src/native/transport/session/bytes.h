// Bytes: a payload, as a copy if it is short, or in memory of the wire if it is long.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "verbs/provider.h"

namespace verbena::transport {

class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(std::span<const std::byte> bytes) : copy_(bytes.begin(), bytes.end()) {}
  explicit Bytes(std::string_view text) : Bytes(std::as_bytes(std::span(text))) {}
  Bytes(std::shared_ptr<Memory> memory, size_t length) : memory_(std::move(memory)), length_(length) {}

  std::span<const std::byte> span() const {
    return memory_ ? std::span<const std::byte>(memory_->data(), length_) : copy_;
  }

 private:
  std::vector<std::byte> copy_;
  std::shared_ptr<Memory> memory_;
  size_t length_ = 0;
};

}  // namespace verbena::transport
