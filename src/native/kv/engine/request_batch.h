// Requests that arrived together and are parsed together. Their arguments are views of the input, so a batch
// is valid only as long as its input.
// Depends on the protocol only; not on the Engine.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "kv/protocol/resp.h"

namespace verbena::kv {

struct NativeCommand;

struct ParsedRequest {
  size_t bytes;  // length in the input
  Arguments arguments;
  NativeCommand* command = nullptr;  // null: not looked up yet, or not native
  uint64_t hash = 0;                 // of the first key, if its bucket has been prefetched
  uint32_t place = 0;                // of that key in its bucket
};

class RequestBatch {
 public:
  // Parses the complete requests in the plain form at the start of `input`, as many as fit. False: there is
  // none, or the first has too many arguments; a RequestReader must parse it.
  bool parse(std::string_view input, const RequestLimits& limits) {
    size_t used = 0, taken = 0;
    for (count_ = 0; count_ < kMost; ++count_) {
      size_t arguments = 0;
      const auto room = std::span(arguments_).subspan(taken);
      const size_t bytes = parse_whole_request(input.substr(used), limits, room, arguments);
      if (bytes == 0) break;
      requests_[count_] = {.bytes = bytes, .arguments = room.first(arguments)};
      taken += arguments;
      used += bytes;
    }
    return count_ > 0;
  }
  std::span<ParsedRequest> requests() { return std::span(requests_).first(count_); }

 private:
  static constexpr size_t kMost = 16;

  std::array<ParsedRequest, kMost> requests_;
  std::array<std::string_view, 4 * kMost> arguments_;
  size_t count_ = 0;
};

}  // namespace verbena::kv
