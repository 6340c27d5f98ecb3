#include "providers/quic/provider.h"

#include <algorithm>
#include <cstdlib>

#include "providers/iwarp/context.h"
#include "providers/quic/engine.h"
#include "util/error.h"

namespace verbena::quic {
namespace {

DeviceAttributes quic_device_attributes(const net::Interface& interface) {
  DeviceAttributes device = iwarp::iwarp_device_attributes(interface);
  device.provider = "quic";
  device.transport = "iWARP messages over QUIC";
  for (auto& [name, value] : device.capabilities) {
    if (name == "checksum") value = "of every packet, by its cipher";
    if (name == "encryption") value = "TLS 1.3, always";
  }
  device.capabilities.emplace_back("library",
                                   std::string("ngtcp2 ") + library().ngtcp2_version(0)->version_str);
  return device;
}

// Has one device for each network interface that is up; the loopback comes last.
class QuicProvider final : public Provider {
 public:
  std::string_view name() const override { return "quic"; }

  std::string unavailable_reason() const override {
    if (!missing_library().empty()) return missing_library();
    return net::interfaces().empty() ? "no network interface is up and has an address" : "";
  }

  std::vector<DeviceAttributes> devices() const override {
    std::vector<DeviceAttributes> devices;
    if (!missing_library().empty()) return devices;
    for (const auto& interface : net::interfaces()) devices.push_back(quic_device_attributes(interface));
    return devices;
  }

  std::shared_ptr<Context> open(const std::string& device) override {
    return quic::open(device, options_from_environment());
  }
};

}  // namespace

std::shared_ptr<Context> open(const std::string& device, const Options& options) {
  library();
  const std::vector<net::Interface> known = net::interfaces();
  const auto found = std::find_if(known.begin(), known.end(), [&](const net::Interface& interface) {
    return device.empty() || interface.name == device;
  });
  if (found == known.end()) {
    throw Error("no_device", "open device", "no network interface '" + device + "' is up and has an address");
  }
  if (!options.stream.tls) {
    throw Error("tls_file", "open device",
                "QUIC is always encrypted, and needs a certificate, its key and an authority");
  }
  iwarp::Options stream = options.stream;
  if (!stream.crc) stream.crc = false;  // TLS detects what a checksum would
  auto context = std::make_shared<iwarp::IwarpContext>(quic_device_attributes(*found), *found, stream,
                                                       soft::private_region_entries(),
                                                       std::make_shared<Engine>(options));
  context->start();
  return context;
}

std::shared_ptr<Provider> make_provider() { return std::make_shared<QuicProvider>(); }

}  // namespace verbena::quic
