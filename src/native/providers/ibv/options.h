// Which port and which GID a context's managed connections start from and listen at.
#pragma once

#include <memory>
#include <string>

#include "verbs/provider.h"

namespace verbena::ibv {

struct Options {
  int port = 0;        // from 1; 0: any
  int gid_index = -1;  // of a RoCE port's table; -1: the one that others reach best
};

// Throws no_device or no_gid when the device has no such port or entry, and says which there are.
void check_options(const DeviceAttributes& device, const Options& options);

std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::ibv
