#include "providers/iwarp/connection.h"

#include <algorithm>

#include "providers/iwarp/context.h"
#include "providers/iwarp/gid.h"
#include "providers/iwarp/queue_pair.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/random.h"

namespace verbena::iwarp {
namespace {

class IwarpConnectRequest final : public ConnectRequest {
 public:
  IwarpConnectRequest(std::shared_ptr<IwarpContext> context, std::unique_ptr<Handshake> handshake)
      : context_(std::move(context)),
        handshake_(std::move(handshake)),
        peer_(net::to_text(handshake_->stream_socket().peer())) {}
  ~IwarpConnectRequest() override {
    if (handshake_) reject({});
  }

  std::string peer() const override { return peer_; }
  std::vector<uint8_t> private_data() const override {
    return handshake_ ? handshake_->request().private_data : std::vector<uint8_t>{};
  }

  std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) override {
    if (!handshake_) throw Error("bad_transition", "accept connection", "the request was answered before");
    auto managed = managed_qp(qp, params);
    const SetUpFrame& request = handshake_->request();
    SetUpFrame reply = reply_to(request, context_->options().wants_crc(), params.responder_resources,
                                params.initiator_depth);
    if (request.trailer && context_->options().acknowledged) {
      reply.trailer = context_->trailer(managed->number(), request.trailer->from_qp, 0);
    }
    reply.private_data = params.private_data;
    reply.markers = context_->options().markers;
    const auto agreement = agree(request, reply, false);
    if (!agreement)
      throw Error("version_mismatch", "accept connection", "the peer offers nothing that this end supports");
    auto connection = std::make_shared<IwarpConnection>(context_, managed, peer_, params);
    context_->add_connection(*connection);
    auto handshake = std::move(handshake_);
    connection->bring_up(handshake->take_socket(), *agreement, encode(reply));
    connection->on_established();
    return connection;
  }

  void reject(std::span<const uint8_t> private_data) override {
    soft::check_private_data(private_data, kMaxUserPrivate, "reject connection");
    if (!handshake_) throw Error("bad_transition", "reject connection", "the request was answered before");
    context_->reject(*std::exchange(handshake_, nullptr), private_data);
  }

 private:
  const std::shared_ptr<IwarpContext> context_;
  std::unique_ptr<Handshake> handshake_;
  const std::string peer_;
};

}  // namespace

std::shared_ptr<IwarpQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp,
                                           const ConnectParams& params) {
  soft::check_private_data(params.private_data, kMaxUserPrivate, "connect");
  auto managed = std::dynamic_pointer_cast<IwarpQueuePair>(qp);
  if (!managed) throw Error("invalid_argument", "connect", "the queue pair must belong to the iwarp device");
  soft::prepare_for_connection(*managed);
  return managed;
}

IwarpConnection::IwarpConnection(std::shared_ptr<IwarpContext> context, std::shared_ptr<IwarpQueuePair> qp,
                                 std::string peer, const ConnectParams& params)
    : SoftConnection(qp, std::move(peer), params),
      context_(std::move(context)),
      qp_(*qp),
      id_(random_value<uint64_t>() | 1) {}

IwarpConnection::~IwarpConnection() {
  context_->remove_connection(*this);
  disconnect();
}

void IwarpConnection::bring_up(net::StreamSocket socket, const Agreement& agreement,
                               const std::vector<uint8_t>& reply) {
  const Gid gid = to_gid(socket.peer());
  if (!qp_.adopt(std::move(socket), agreement, params_.responder_resources, reply)) {
    throw Error("peer_died", "connect", "the peer left, or the queue pair is in use");
  }
  move_qp_to_rts(gid, agreement.peer_qp);
}

void IwarpConnection::on_reply(Handshake& handshake) {
  if (!is_connecting()) return;
  const SetUpFrame& reply = handshake.reply();
  if (reply.rejected && reply.trailer && (reply.trailer->flags & trailer_flag::needs_tls)) {
    return on_failure("tls_required");
  }
  if (reply.rejected) {
    change(ConnectionState::rejected, "rejected", reply.private_data);
    return;
  }
  const auto agreement = agree(handshake.request(), reply, true);
  if (!agreement) return on_failure("version_mismatch");
  try {
    bring_up(handshake.take_socket(), *agreement, {});
  } catch (const Error& error) {
    return on_failure(error.code());
  }
  change(ConnectionState::established, {}, reply.private_data);
}

void IwarpConnection::on_failure(ErrorCode code, std::string detail) {
  change(ConnectionState::failed, code, {}, std::move(detail));
}

void IwarpConnection::on_lost() {
  if (change(ConnectionState::disconnected, qp_.end_code())) move_qp_to_err();
}

void IwarpConnection::disconnect() {
  if (change(ConnectionState::disconnected)) move_qp_to_err();
}

IwarpListener::IwarpListener(std::shared_ptr<IwarpContext> context, const std::string& address, int backlog)
    : context_(std::move(context)), backlog_(static_cast<size_t>(std::max(backlog, 1))) {
  const auto addresses = address.empty() ? std::vector{context_->nearby()} : net::resolve(address, "listen");
  if (StreamTransport* transport = context_->transport()) {
    endpoint_id_ = transport->listen(addresses, address);
    address_ = net::to_text(transport->address_of(endpoint_id_));
  } else {
    socket_ = net::listen_at(addresses, address, std::max(backlog, 1));
    endpoint_id_ = socket_.get();
    address_ = net::to_text(net::local_address(endpoint_id_));
  }
  context_->add_listener(*this);
}

IwarpListener::IwarpListener(std::shared_ptr<IwarpContext> context, int backlog)
    : context_(std::move(context)),
      backlog_(static_cast<size_t>(std::max(backlog, 1))),
      endpoint_id_(context_->id_without_port()) {
  context_->add_listener(*this);
}

void IwarpListener::take_over(UniqueFd socket, uint32_t timeout_ms) {
  context_->take_over(std::move(socket), endpoint_id_, timeout_ms);
}

void IwarpListener::close() {
  std::call_once(closed_, [this] {
    context_->remove_listener(*this);
    socket_.reset();
    while (next()) continue;  // a request that is dropped unanswered is rejected
  });
}

bool IwarpListener::push(std::unique_ptr<Handshake> request) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= backlog_) return false;
    waiting_.push_back(std::move(request));
  }
  event_.signal();
  return true;
}

std::shared_ptr<ConnectRequest> IwarpListener::next() {
  std::unique_ptr<Handshake> handshake;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return nullptr;
    handshake = std::move(waiting_.front());
    waiting_.pop_front();
    if (waiting_.empty()) event_.clear();
  }
  return std::make_shared<IwarpConnectRequest>(context_, std::move(handshake));
}

}  // namespace verbena::iwarp
