// A peer's memory: RemoteMemory for queue pairs (address and rkey), RemoteRegion for sessions.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include "bind/bind.h"
#include "bind/verbs/remote_layout.h"

namespace verbena::bind {

struct RemoteMemory {
  uint64_t addr = 0;
  uint32_t rkey = 0;
  uint64_t length = 0;

  bool operator==(const RemoteMemory&) const = default;
};

struct Range {
  uint64_t offset, length;
};

// The range of [start:stop]. Throws unless it lies inside `length`, unlike slicing a list.
Range range_of(const nb::slice& slice, uint64_t length, const char* operation);

void bind_remote_region(nb::module_& m);

}  // namespace verbena::bind
