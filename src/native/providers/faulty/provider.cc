#include "providers/faulty/provider.h"

#include <utility>

#include "providers/faulty/completion_queue.h"
#include "providers/faulty/connection.h"
#include "providers/faulty/domain.h"
#include "providers/faulty/queue_pair.h"
#include "providers/faulty/unwrap.h"

namespace verbena::faulty {
namespace {

class FaultyContext final : public Context, public PortSharing {
 public:
  FaultyContext(std::shared_ptr<Context> inner, std::shared_ptr<FaultPlan> plan, std::shared_ptr<Peers> peers)
      : inner_(std::move(inner)), plan_(std::move(plan)), peers_(std::move(peers)) {}

  DeviceAttributes query() const override { return inner_->query(); }
  std::shared_ptr<ProtectionDomain> alloc_pd() override {
    return std::make_shared<FaultyProtectionDomain>(inner_, inner_->alloc_pd(), plan_, peers_);
  }
  std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) override {
    return std::make_shared<FaultyCompletionQueue>(inner_->create_cq(depth));
  }
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) override {
    return inner_->allocate(bytes, options);
  }
  void quiesce() override { inner_->quiesce(); }
  void set_memory_node(int node) override { inner_->set_memory_node(node); }
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override {
    return wrap_listener(inner_->listen(address, backlog));
  }
  std::shared_ptr<SocketListener> listen_to_sockets(int backlog) override {
    auto* sharing = dynamic_cast<PortSharing*>(inner_.get());
    auto listener = sharing ? sharing->listen_to_sockets(backlog) : nullptr;
    return listener ? wrap_listener(std::move(listener)) : nullptr;
  }
  void close_own_port() override {
    if (auto* sharing = dynamic_cast<PortSharing*>(inner_.get())) sharing->close_own_port();
  }
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override {
    const auto faulty_qp = unwrap<FaultyQueuePair>(qp, "connect");
    auto connection = inner_->connect(faulty_qp->inner(), address, params);
    faulty_qp->set_connection(connection);
    return connection;
  }
  bool is_removed() const override { return inner_->is_removed(); }
  void close() override { inner_->close(); }

 private:
  const std::shared_ptr<Context> inner_;
  const std::shared_ptr<FaultPlan> plan_;
  const std::shared_ptr<Peers> peers_;
};

class FaultyProvider final : public Provider {
 public:
  FaultyProvider(std::shared_ptr<Provider> inner, std::shared_ptr<FaultPlan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}

  std::string_view name() const override { return "faulty"; }
  std::string unavailable_reason() const override { return inner_->unavailable_reason(); }
  std::vector<DeviceAttributes> devices() const override { return inner_->devices(); }
  std::shared_ptr<Context> open(const std::string& device) override {
    return std::make_shared<FaultyContext>(inner_->open(device), plan_, peers_);
  }

 private:
  const std::shared_ptr<Provider> inner_;
  const std::shared_ptr<FaultPlan> plan_;
  const std::shared_ptr<Peers> peers_ = std::make_shared<Peers>();
};

}  // namespace

std::shared_ptr<Provider> make_provider(std::shared_ptr<Provider> inner, std::shared_ptr<FaultPlan> plan) {
  return std::make_shared<FaultyProvider>(std::move(inner), std::move(plan));
}

}  // namespace verbena::faulty
