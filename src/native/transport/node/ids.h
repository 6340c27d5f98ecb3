// Ids of work requests on a link: a tag for the kind of request, and a number.
// Depends on the standard library only.
#pragma once

#include <cstdint>

namespace verbena::transport {

enum class RequestTag : uint8_t { receive = 1, message = 2, operation = 3 };

constexpr uint64_t request_id(RequestTag tag, uint64_t value) {
  return uint64_t{static_cast<uint8_t>(tag)} << 56 | value;
}
constexpr RequestTag tag_of(uint64_t id) { return static_cast<RequestTag>(id >> 56); }
constexpr uint64_t value_of(uint64_t id) { return id & ((uint64_t{1} << 56) - 1); }

}  // namespace verbena::transport
