#include "providers/shm/provider.h"

#include "providers/shm/context.h"
#include "util/error.h"

namespace verbena::shm {
namespace {

class ShmProvider final : public Provider {
 public:
  std::string_view name() const override { return "shm"; }

  std::string unavailable_reason() const override {
    try {
      make_memfd("verbena-probe", 4096, false);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::vector<DeviceAttributes> devices() const override { return {shm_device_attributes()}; }

  std::shared_ptr<Context> open(const std::string& device) override {
    if (!device.empty() && device != "shm0") {
      throw Error("no_device", "open device",
                  "the shm provider has one device, shm0, and no '" + device + "'");
    }
    return ShmContext::open();
  }
};

}  // namespace

std::shared_ptr<Provider> make_provider() { return std::make_shared<ShmProvider>(); }

}  // namespace verbena::shm
