#include "providers/shm/connection.h"

#include <sys/socket.h>

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/random.h"

namespace verbena::shm {
namespace {

std::string describe(const Link& link, uint32_t qp) {
  return "pid " + std::to_string(link.pid()) + " qp " + std::to_string(qp);
}

class ShmConnectRequest final : public ConnectRequest {
 public:
  ShmConnectRequest(std::shared_ptr<ShmContext> context, PendingRequest pending)
      : context_(std::move(context)), pending_(std::move(pending)) {}
  ~ShmConnectRequest() override {
    if (!answered_) reject({});
  }

  std::string peer() const override { return describe(*pending_.link, pending_.peer_qp); }
  std::vector<uint8_t> private_data() const override { return pending_.private_data; }

  std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) override {
    if (answered_) throw Error("bad_transition", "accept connection", "the request was answered before");
    auto managed = managed_qp(qp, params);
    const UniqueFd ring = managed->share_ring();
    auto connection =
        std::make_shared<ShmConnection>(context_, managed, peer(), pending_.connection_id | 1, params);
    connection->bring_up(pending_.link, pending_.ring.get(), pending_.peer_qp);
    context_->add_connection(*connection);
    answered_ = true;
    const bool sent = pending_.link->send({.kind = MessageKind::accept,
                                           .from_qp = managed->number(),
                                           .to_qp = pending_.peer_qp,
                                           .connection_id = pending_.connection_id,
                                           .private_data = params.private_data,
                                           .fds = {ring.get(), -1}});
    if (!sent) connection->on_link_failed();
    return connection;
  }

  void reject(std::span<const uint8_t> private_data) override {
    soft::check_private_data(private_data, kMaxPrivateData, "reject connection");
    if (answered_) throw Error("bad_transition", "reject connection", "the request was answered before");
    answered_ = true;
    pending_.link->send({.kind = MessageKind::reject,
                         .to_qp = pending_.peer_qp,
                         .connection_id = pending_.connection_id,
                         .private_data = private_data});
  }

 private:
  const std::shared_ptr<ShmContext> context_;
  PendingRequest pending_;
  bool answered_ = false;
};

}  // namespace

std::shared_ptr<ShmQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp, const ConnectParams& params) {
  soft::check_private_data(params.private_data, kMaxPrivateData, "connect");
  auto managed = std::dynamic_pointer_cast<ShmQueuePair>(qp);
  if (!managed) throw Error("invalid_argument", "connect", "the queue pair must belong to the shm device");
  soft::prepare_for_connection(*managed);
  managed->manage();
  return managed;
}

ShmConnection::ShmConnection(std::shared_ptr<ShmContext> context, std::shared_ptr<ShmQueuePair> qp,
                             std::string peer, uint64_t connection_id, const ConnectParams& params)
    : SoftConnection(qp, std::move(peer), params),
      context_(std::move(context)),
      qp_(*qp),
      connection_id_(connection_id) {}

ShmConnection::~ShmConnection() {
  context_->remove_connection(*this);
  disconnect();
}

void ShmConnection::bring_up(const std::shared_ptr<Link>& link, int ring_fd, uint32_t peer_qp) {
  link_ = link;
  if (!qp_.bind_peer(link, ring_fd, peer_qp))
    throw Error("bad_message", "connect", "the peer's ring is unusable");
  move_qp_to_rts(link->gid(), peer_qp);
}

void ShmConnection::on_accept(const std::shared_ptr<Link>& link, ControlMessage& message) {
  if (!is_connecting()) {
    link->send({.kind = MessageKind::disconnect, .connection_id = peer_connection_id()});
    return;
  }
  try {
    bring_up(link, message.fds[0].get(), message.header.from_qp);
  } catch (const Error& error) {
    if (change(ConnectionState::failed, error.code())) {
      link->send({.kind = MessageKind::disconnect, .connection_id = peer_connection_id()});
    }
    return;
  }
  link->send({.kind = MessageKind::established, .connection_id = peer_connection_id()});
  change(ConnectionState::established, {}, message.private_data());
}

void ShmConnection::on_reject(ControlMessage& message) {
  const bool no_listener = message.header.argument != 0;
  change(no_listener ? ConnectionState::failed : ConnectionState::rejected,
         no_listener ? ErrorCode("unreachable") : "rejected", message.private_data());
}

void ShmConnection::on_established() { change(ConnectionState::established); }

void ShmConnection::on_disconnect() {
  if (change(ConnectionState::disconnected)) move_qp_to_err();
}

void ShmConnection::on_link_failed() {
  const bool connecting = is_connecting();
  change(connecting ? ConnectionState::failed : ConnectionState::disconnected, "peer_died");
}

void ShmConnection::check_deadline(uint64_t now) {
  if (is_connecting() && now >= deadline_ns() && change(ConnectionState::failed, "connect_timeout"))
    move_qp_to_err();
}

void ShmConnection::disconnect() {
  const bool was_up = state() == ConnectionState::established || is_connecting();
  if (!was_up || !change(ConnectionState::disconnected)) return;
  if (link_) link_->send({.kind = MessageKind::disconnect, .connection_id = peer_connection_id()});
  move_qp_to_err();
}

ShmListener::ShmListener(std::shared_ptr<ShmContext> context, std::string service, int backlog)
    : context_(std::move(context)),
      service_(std::move(service)),
      backlog_(static_cast<size_t>(std::max(backlog, 1))),
      socket_(listen_at(service_address(service_), SOMAXCONN)) {  // push() enforces the backlog
  context_->add_listener(*this);
}

void ShmListener::close() {
  std::call_once(closed_, [this] {
    context_->remove_listener(*this);
    socket_.reset();
    while (next()) continue;  // a request that is dropped unanswered is rejected
  });
}

bool ShmListener::push(PendingRequest request) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= backlog_) return false;
    waiting_.push_back(std::move(request));
  }
  event_.signal();
  return true;
}

std::shared_ptr<ConnectRequest> ShmListener::next() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return nullptr;
  auto request = std::make_shared<ShmConnectRequest>(context_, std::move(waiting_.front()));
  waiting_.pop_front();
  if (waiting_.empty()) event_.clear();
  return request;
}

}  // namespace verbena::shm
