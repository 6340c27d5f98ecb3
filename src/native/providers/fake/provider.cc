#include "providers/fake/provider.h"

#include <atomic>
#include <utility>

#include "providers/fake/completion_queue.h"
#include "providers/fake/connection.h"
#include "providers/fake/queue_pair.h"
#include "providers/soft/context.h"
#include "util/error.h"

namespace verbena::fake {
namespace {

constexpr std::string_view kDeviceName = "fake0";

// Every context has its own GID, so queue pair numbers must be unique only within a context.
Gid next_gid() {
  static std::atomic<uint32_t> count{0};
  const uint32_t number = ++count;
  Gid gid{0xfd, 'f', 'a', 'k', 'e'};
  for (size_t i = 0; i < sizeof number; ++i) gid[15 - i] = static_cast<uint8_t>(number >> (8 * i));
  return gid;
}

DeviceAttributes describe(const Gid& gid) {
  DeviceAttributes device = soft::soft_device_attributes();
  device.name = kDeviceName;
  device.provider = "fake";
  device.transport = "memory of one process";
  device.ports = {{.state = PortState::active,
                   .active_mtu = 4096,
                   .lid = 0,
                   .link_layer = "memory",
                   .gids = {gid},
                   .gid_types = {"fake"}}};
  device.capabilities = {{"one_sided", "yes"},
                         {"atomics", "yes"},
                         {"immediate", "yes"},
                         {"memory_windows", "yes"},
                         {"checksum", "crc32c"}};
  return device;
}

class FakeContext final : public soft::SoftContext {
 public:
  explicit FakeContext(std::shared_ptr<soft::RegionEntry> entries)
      : SoftContext(entries.get()), entries_(std::move(entries)) {}

  DeviceAttributes query() const override { return describe(gid_); }
  std::shared_ptr<soft::SoftCompletionQueue> make_cq(uint32_t depth) override {
    return std::make_shared<FakeCompletionQueue>(depth);
  }
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) override {
    return soft::anonymous_memory(bytes, options.huge_pages, memory_node());
  }
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override {
    return fake::listen(address, backlog);
  }
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override {
    return fake::connect(qp, address, params);
  }
  void close() override {}
  std::shared_ptr<soft::SoftQueuePair> make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                               const QpOptions& options, uint32_t number) override {
    return std::make_shared<FakeQueuePair>(std::move(domain), options, Address{gid_, number});
  }

 private:
  const std::shared_ptr<soft::RegionEntry> entries_;
  const Gid gid_ = next_gid();
};

class FakeProvider final : public Provider {
 public:
  std::string_view name() const override { return "fake"; }
  std::string unavailable_reason() const override { return {}; }
  std::vector<DeviceAttributes> devices() const override { return {describe({0xfd, 'f', 'a', 'k', 'e'})}; }
  std::shared_ptr<Context> open(const std::string& device) override {
    if (!device.empty() && device != kDeviceName) {
      throw Error("no_device", "open device", "the fake provider has no device '" + device + "'");
    }
    return std::make_shared<FakeContext>(soft::private_region_entries());
  }
};

}  // namespace

std::shared_ptr<Provider> make_provider() { return std::make_shared<FakeProvider>(); }

void set_packet_tap(PacketTap tap) { Fabric::instance().set_tap(std::move(tap)); }

uint64_t virtual_now_ns() { return Fabric::instance().now(); }

}  // namespace verbena::fake
