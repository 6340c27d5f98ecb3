// RemoteRegion: the reference to a node's memory that programs send to its peers, by any means, as bytes.
#pragma once

#include <cstdint>

namespace verbena::bind {

struct RemoteRegion {
  uint64_t addr = 0;
  uint64_t length = 0;
  uint64_t key = 0;     // unguessable; identifies the region on every wire
  uint64_t epoch = 0;   // of the node that exposed the region: differs in each run of the program
  uint64_t offset = 0;  // of a slice: its distance from the region's start

  bool operator==(const RemoteRegion&) const = default;
};
static_assert(sizeof(RemoteRegion) == 40);

}  // namespace verbena::bind
