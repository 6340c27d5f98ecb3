// Takes the provider's place in a build without the headers of libibverbs and librdmacm.
#include "providers/ibv/options.h"
#include "providers/ibv/provider.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

constexpr const char* kReason =
    "this build was made without the headers infiniband/verbs.h and rdma/rdma_cma.h; install them "
    "(Debian: libibverbs-dev librdmacm-dev) and build again";

class MissingProvider final : public Provider {
 public:
  std::string_view name() const override { return "ibv"; }
  std::string unavailable_reason() const override { return kReason; }
  std::vector<DeviceAttributes> devices() const override { return {}; }
  std::shared_ptr<Context> open(const std::string&) override {
    throw Error("provider_missing", "open device", kReason);
  }
};

}  // namespace

std::shared_ptr<Context> open(const std::string&, const Options&) {
  throw Error("provider_missing", "open device", kReason);
}

std::shared_ptr<Provider> make_provider() { return std::make_shared<MissingProvider>(); }

}  // namespace verbena::ibv
