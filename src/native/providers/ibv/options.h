// The port and GID from which a context's managed connections start and on which they listen.
#pragma once

#include <memory>
#include <string>

#include "verbs/provider.h"

namespace verbena::ibv {

struct Options {
  int port = 0;        // from 1; 0: any
  int gid_index = -1;  // index in a RoCE port's table; -1: the one that peers reach best
};

// Throws no_device or no_gid when the device has no such port or entry; the text lists those that exist.
void check_options(const DeviceAttributes& device, const Options& options);

std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::ibv
