#include "providers/ibv/context.h"

#include <algorithm>

#include "providers/ibv/cm/connection.h"
#include "providers/ibv/cm/listener.h"
#include "providers/ibv/completion_queue.h"
#include "providers/ibv/domain.h"
#include "providers/soft/context.h"
#include "util/error.h"

namespace verbena::ibv {

IbvContext::IbvContext(DeviceHandle device, const Options& options)
    : device_(std::move(device)),
      limits_(describe(device_.get())),
      options_(options),
      has_atomics_(
          std::ranges::find(limits_.capabilities, std::pair<std::string, std::string>("atomics", "no")) ==
          limits_.capabilities.end()),
      loop_(std::make_shared<EventLoop>(device_.get())) {
  check_options(limits_, options_);
  loop_->start();
}

IbvContext::~IbvContext() { loop_->stop(); }

std::shared_ptr<ProtectionDomain> IbvContext::alloc_pd() {
  return std::make_shared<IbvDomain>(shared_from_this());
}

std::shared_ptr<CompletionQueue> IbvContext::create_cq(uint32_t depth) {
  if (depth == 0 || depth > limits_.max_cqe) {
    throw Error("limit_exceeded", "create completion queue",
                "the depth must be from 1 to " + std::to_string(limits_.max_cqe));
  }
  return std::make_shared<IbvCompletionQueue>(shared_from_this(), depth);
}

std::shared_ptr<Memory> IbvContext::allocate(size_t bytes, bool huge_pages) {
  return soft::anonymous_memory(bytes, huge_pages, memory_node());
}

std::shared_ptr<Listener> IbvContext::listen(const std::string& address, int backlog) {
  auto listener = std::make_shared<IbvListener>(shared_from_this(), backlog);
  listener->start(address);
  return listener;
}

std::shared_ptr<Connection> IbvContext::connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                                const ConnectParams& params) {
  auto connection = std::make_shared<IbvConnection>(
      shared_from_this(), managed_qp(qp, *this, params.private_data.size(), PrivateData::connect, "connect"),
      address, params);
  connection->start(address);
  return connection;
}

std::shared_ptr<IbvContext> open_context(const std::string& device, const Options& options) {
  return std::make_shared<IbvContext>(open_device(device), options);
}

}  // namespace verbena::ibv
