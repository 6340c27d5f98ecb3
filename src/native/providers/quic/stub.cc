// Takes the provider's place in a build without the headers of ngtcp2 and GnuTLS.
#include "providers/quic/options.h"
#include "providers/quic/provider.h"
#include "util/error.h"

namespace verbena::quic {
namespace {

constexpr const char* kReason =
    "this build was made without the headers of ngtcp2 0.12 and GnuTLS; install them (Debian: libngtcp2-dev "
    "libngtcp2-crypto-gnutls-dev libgnutls28-dev) and build again";

class MissingProvider final : public Provider {
 public:
  std::string_view name() const override { return "quic"; }
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

}  // namespace verbena::quic
