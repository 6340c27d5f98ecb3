#include "providers/ibv/provider.h"

#include "providers/ibv/context.h"
#include "providers/ibv/device/device.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

class IbvProvider final : public Provider {
 public:
  std::string_view name() const override { return "ibv"; }

  std::string unavailable_reason() const override {
    if (!missing_library().empty()) return missing_library();
    return device_names().empty() ? no_device_reason() : "";
  }

  ErrorCode unavailable_code() const override {
    return missing_library().empty() ? ErrorCode("no_device") : "provider_missing";
  }

  std::vector<DeviceAttributes> devices() const override {
    std::vector<DeviceAttributes> found;
    for (const std::string& device : device_names()) {
      try {
        found.push_back(describe(open_device(device).get()));
      } catch (const Error& error) {
        found.push_back(describe_unusable(device, error.what()));
      }
    }
    return found;
  }

  std::shared_ptr<Context> open(const std::string& device) override { return open_context(device); }
};

}  // namespace

std::shared_ptr<Provider> make_provider() { return std::make_shared<IbvProvider>(); }

}  // namespace verbena::ibv
