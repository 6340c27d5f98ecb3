#include "providers/faulty/connection.h"

#include <utility>

#include "providers/faulty/queue_pair.h"
#include "providers/faulty/unwrap.h"

namespace verbena::faulty {
namespace {

class FaultyConnectRequest final : public ConnectRequest {
 public:
  explicit FaultyConnectRequest(std::shared_ptr<ConnectRequest> inner) : inner_(std::move(inner)) {}

  std::string peer() const override { return inner_->peer(); }
  std::vector<uint8_t> private_data() const override { return inner_->private_data(); }
  std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) override {
    const auto faulty_qp = unwrap<FaultyQueuePair>(qp, "accept");
    auto connection = inner_->accept(faulty_qp->inner(), params);
    faulty_qp->set_connection(connection);
    return connection;
  }
  void reject(std::span<const uint8_t> private_data) override { inner_->reject(private_data); }

 private:
  const std::shared_ptr<ConnectRequest> inner_;
};

class FaultyListener final : public SocketListener {
 public:
  explicit FaultyListener(std::shared_ptr<Listener> inner) : inner_(std::move(inner)) {}

  std::string address() const override { return inner_->address(); }
  int fileno() const override { return inner_->fileno(); }
  std::shared_ptr<ConnectRequest> next() override {
    auto request = inner_->next();
    return request ? std::make_shared<FaultyConnectRequest>(std::move(request)) : nullptr;
  }
  void close() override { inner_->close(); }
  void take_over(UniqueFd socket, uint32_t timeout_ms) override {
    if (auto* listener = dynamic_cast<SocketListener*>(inner_.get()))
      listener->take_over(std::move(socket), timeout_ms);
  }

 private:
  const std::shared_ptr<Listener> inner_;
};

}  // namespace

std::shared_ptr<SocketListener> wrap_listener(std::shared_ptr<Listener> inner) {
  return std::make_shared<FaultyListener>(std::move(inner));
}

}  // namespace verbena::faulty
