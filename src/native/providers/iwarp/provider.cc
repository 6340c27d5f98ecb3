#include "providers/iwarp/provider.h"

#include <algorithm>

#include "providers/iwarp/context.h"
#include "util/error.h"

namespace verbena::iwarp {
namespace {

// Has one device for each network interface that is up; the loopback comes last.
class IwarpProvider final : public Provider {
 public:
  std::string_view name() const override { return "iwarp"; }

  std::string unavailable_reason() const override {
    return net::interfaces().empty() ? "no network interface is up and has an address" : "";
  }

  std::vector<DeviceAttributes> devices() const override {
    std::vector<DeviceAttributes> devices;
    for (const net::Interface& interface : net::interfaces())
      devices.push_back(iwarp_device_attributes(interface));
    return devices;
  }

  std::shared_ptr<Context> open(const std::string& device) override {
    return iwarp::open(device, options_from_environment());
  }
};

}  // namespace

std::shared_ptr<Context> open(const std::string& device, const Options& options) {
  const std::vector<net::Interface> known = net::interfaces();
  const auto found = std::find_if(known.begin(), known.end(), [&](const net::Interface& interface) {
    return device.empty() || interface.name == device;
  });
  if (found == known.end()) {
    throw Error("no_device", "open device", "no network interface '" + device + "' is up and has an address");
  }
  auto context = std::make_shared<IwarpContext>(iwarp_device_attributes(*found), *found, options,
                                                soft::private_region_entries());
  context->start();
  return context;
}

std::shared_ptr<Provider> make_provider() { return std::make_shared<IwarpProvider>(); }

}  // namespace verbena::iwarp
