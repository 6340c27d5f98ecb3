#include "providers/ibv/context.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "providers/ibv/cm/connection.h"
#include "providers/ibv/cm/listener.h"
#include "providers/ibv/completion_queue.h"
#include "providers/ibv/domain.h"
#include "providers/soft/context.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

std::string_view capability(const DeviceAttributes& device, std::string_view name) {
  const auto found = std::ranges::find(device.capabilities, name, [](const auto& row) { return row.first; });
  return found == device.capabilities.end() ? std::string_view() : found->second;
}

uint64_t identity_of(const std::string& folder) {
  struct stat found;
  return ::stat(folder.c_str(), &found) == 0 ? found.st_ino : 0;
}

// How often sysfs is asked whether the device is still there, and how often a removal continues.
constexpr int kLookMs = 1000, kRemovalMs = 10;
// Meanwhile programs see that their connections have ended and their requests were flushed, and what they
// begin does not fail yet.
constexpr int kFlushMs = 200;

}  // namespace

IbvContext::IbvContext(DeviceHandle device, const Options& options)
    : device_(std::move(device)),
      limits_(describe(device_.get())),
      options_(options),
      is_iwarp_(ibv::is_iwarp(device_.get())),
      has_atomics_(capability(limits_, "atomics") != "no"),
      has_windows_(capability(limits_, "memory_windows").starts_with("type 2")),
      folder_(std::string("/sys/class/infiniband_verbs/") + device_.get()->device->dev_name),
      identity_(identity_of(folder_)),
      loop_(std::make_shared<EventLoop>(device_.get(), limits_.name)) {
  check_options(limits_, options_);
}

void IbvContext::start() { loop_->start(weak_from_this()); }

IbvContext::~IbvContext() {
  loop_->stop();
  // The program may close this context before the removal is complete.
  if (removed_ || !is_present()) loop_->release_library();
}

DeviceAttributes IbvContext::query() const {
  const DeviceUse use = this->use("query device");
  return describe(device_.get());
}

bool IbvContext::is_present() const { return identity_ == 0 || identity_of(folder_) == identity_; }

int IbvContext::on_tick() {
  if (removal_ == Removal::closed) return -1;
  if (!removed_) {
    if (is_present()) return kLookMs;
    on_device_removed();
  }
  uses_.remove(RemovalRank::connection);
  if (std::exchange(removal_, Removal::disconnected) == Removal::none) return kFlushMs;
  uses_.refuse();
  domains_.refuse();
  uses_.remove(RemovalRank::queue_pair);
  uses_.remove(RemovalRank::queue);
  uses_.remove(RemovalRank::region);
  if (uses_.count() > 0) return kRemovalMs;
  uses_.remove(RemovalRank::domain);
  if (domains_.count() > 0) return kRemovalMs;
  loop_->forget_device();
  device_.reset();
  removal_ = Removal::closed;
  return -1;
}

std::shared_ptr<ProtectionDomain> IbvContext::alloc_pd() {
  auto domain = std::make_shared<IbvDomain>(shared_from_this());
  track(RemovalRank::domain, domain);
  return domain;
}

std::shared_ptr<CompletionQueue> IbvContext::create_cq(uint32_t depth) {
  if (depth == 0 || depth > limits_.max_cqe) {
    throw Error("limit_exceeded", "create completion queue",
                "the depth must be from 1 to " + std::to_string(limits_.max_cqe));
  }
  auto cq = std::make_shared<IbvCompletionQueue>(shared_from_this(), depth);
  track(RemovalRank::queue, cq);
  return cq;
}

std::shared_ptr<Memory> IbvContext::allocate(size_t bytes, const MemoryOptions& options) {
  return soft::anonymous_memory(bytes, options.huge_pages, memory_node());
}

void IbvContext::hold_device(const char* operation) {
  if (removed_) throw Error("no_device", operation, "the device " + name() + " was removed");
  if (!loop_->holds_device()) loop_->hold_device(own_address(*this, 0));
}

std::shared_ptr<Listener> IbvContext::listen(const std::string& address, int backlog) {
  const DeviceUse use = this->use("listen");
  auto listener = std::make_shared<IbvListener>(shared_from_this(), backlog);
  hold_device("listen");
  listener->start(address);
  track(RemovalRank::connection, listener);
  return listener;
}

std::shared_ptr<Connection> IbvContext::connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                                const ConnectParams& params) {
  const DeviceUse use = this->use("connect");
  auto connection = std::make_shared<IbvConnection>(
      shared_from_this(), managed_qp(qp, *this, params.private_data.size(), PrivateData::connect, "connect"),
      address, params);
  hold_device("connect");
  connection->start(address);
  track(RemovalRank::connection, connection);
  return connection;
}

std::shared_ptr<IbvContext> open_context(const std::string& device, const Options& options) {
  auto context = std::make_shared<IbvContext>(open_device(device), options);
  context->start();
  return context;
}

}  // namespace verbena::ibv
