// How a node's memory is named to its peers: by these bytes, which programs pass around as they like.
#pragma once

#include <cstdint>

namespace verbena::bind {

struct RemoteRegion {
  uint64_t addr = 0;
  uint64_t length = 0;
  uint64_t key = 0;     // unguessable; stands for the region on whatever wire there is
  uint64_t epoch = 0;   // the run of the program that exposed it
  uint64_t offset = 0;  // of a part, from the region's start

  bool operator==(const RemoteRegion&) const = default;
};
static_assert(sizeof(RemoteRegion) == 40);

}  // namespace verbena::bind
