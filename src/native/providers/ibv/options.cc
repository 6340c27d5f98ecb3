#include "providers/ibv/options.h"

#include "providers/ibv/context.h"
#include "providers/ibv/device/gids.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

bool has_entry(const PortAttributes& port, int index) {
  const auto at = static_cast<size_t>(index);
  return at < port.gids.size() && family_of(port.gids[at]) != GidFamily::none;
}

std::string entries_of(const PortAttributes& port) {
  std::string list;
  for (size_t i = 0; i < port.gids.size(); ++i) {
    if (!has_entry(port, static_cast<int>(i))) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(i) + " (" + port.gid_types[i] + ")";
  }
  return list.empty() ? "none" : list;
}

}  // namespace

void check_options(const DeviceAttributes& device, const Options& options) {
  const auto ports = static_cast<int>(device.ports.size());
  if (options.port > ports) {
    throw Error(
        "no_device", "open device",
        device.name + " has no port " + std::to_string(options.port) + ", it has " + std::to_string(ports));
  }
  if (options.gid_index < 0 || device.transport != "RoCE") return;
  const int number = options.port > 0 ? options.port : 1;
  const PortAttributes& port = device.ports.at(static_cast<size_t>(number - 1));
  if (has_entry(port, options.gid_index)) return;
  throw Error("no_gid", "open device",
              "the GID table of " + device.name + ", port " + std::to_string(number) + ", has no entry " +
                  std::to_string(options.gid_index) + "; it has " + entries_of(port));
}

std::shared_ptr<Context> open(const std::string& device, const Options& options) {
  return open_context(device, options);
}

}  // namespace verbena::ibv
