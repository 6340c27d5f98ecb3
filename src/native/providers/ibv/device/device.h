// The description of a device: limits, ports, GID tables, and what sysfs adds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/ibv/device/library.h"
#include "verbs/types.h"

namespace verbena::ibv {

struct CloseDevice {
  void operator()(ibv_context* context) const { library().close_device(context); }
};
using DeviceHandle = std::unique_ptr<ibv_context, CloseDevice>;

// The names of libibverbs' devices; empty also when the kernel has no RDMA support.
std::vector<std::string> device_names();

// Why there is no device, and the remedy.
std::string no_device_reason();

// An empty name opens the first; throws no_device.
DeviceHandle open_device(const std::string& name);

std::string name_of(const ibv_context* context);
bool is_iwarp(const ibv_context* context);

PortAttributes query_port(ibv_context* context, uint8_t port);
DeviceAttributes describe(ibv_context* context);
// The description of a device that cannot be opened.
DeviceAttributes describe_unusable(const std::string& name, const std::string& reason);

constexpr uint32_t mtu_bytes(ibv_mtu mtu) { return 128u << static_cast<uint32_t>(mtu); }
// The largest MTU of verbs that is not above `bytes`.
ibv_mtu mtu_for(uint32_t bytes);

}  // namespace verbena::ibv
