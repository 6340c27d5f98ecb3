#include "providers/iwarp/connection.h"

#include <algorithm>

#include "providers/iwarp/context.h"
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
        peer_(to_text(handshake_->wire().peer())) {}
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
    if (!agreement) throw Error("version_mismatch", "accept connection", "no offer of the peer's can be met");
    auto connection = std::make_shared<IwarpConnection>(context_, managed, peer_, params);
    context_->add_connection(*connection);
    auto handshake = std::move(handshake_);
    connection->bring_up(handshake->take_wire(), *agreement, encode(reply));
    connection->on_established();
    return connection;
  }

  void reject(std::span<const uint8_t> private_data) override {
    check_private_data(private_data, "reject connection");
    if (!handshake_) throw Error("bad_transition", "reject connection", "the request was answered before");
    context_->turn_down(*std::exchange(handshake_, nullptr), private_data);
  }

 private:
  const std::shared_ptr<IwarpContext> context_;
  std::unique_ptr<Handshake> handshake_;
  const std::string peer_;
};

}  // namespace

void check_private_data(std::span<const uint8_t> data, const char* operation) {
  if (data.size() > kMaxUserPrivate) {
    throw Error("limit_exceeded", operation,
                "private data is limited to " + std::to_string(kMaxUserPrivate) + " bytes");
  }
}

std::shared_ptr<IwarpQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp,
                                           const ConnectParams& params) {
  check_private_data(params.private_data, "connect");
  auto managed = std::dynamic_pointer_cast<IwarpQueuePair>(qp);
  if (!managed) throw Error("invalid_argument", "connect", "a queue pair of the iwarp device is needed");
  if (managed->state() == QpState::reset) {
    managed->modify({.state = QpState::init,
                     .present = qp_attr::pkey_index | qp_attr::port | qp_attr::access_flags,
                     .access_flags = access::all});
  }
  if (managed->state() != QpState::init) {
    throw Error("bad_transition", "connect", "the queue pair must be in RESET or INIT");
  }
  return managed;
}

IwarpConnection::IwarpConnection(std::shared_ptr<IwarpContext> context, std::shared_ptr<IwarpQueuePair> qp,
                                 std::string peer, const ConnectParams& params)
    : context_(std::move(context)),
      qp_(std::move(qp)),
      peer_(std::move(peer)),
      params_(params),
      id_(random_value<uint64_t>() | 1),
      deadline_ns_(now_ns() + uint64_t{params.timeout_ms} * 1'000'000) {}

IwarpConnection::~IwarpConnection() {
  context_->remove_connection(*this);
  disconnect();
}

ConnectionState IwarpConnection::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string IwarpConnection::error_code() const {
  const std::lock_guard lock(mutex_);
  return code_;
}

std::string IwarpConnection::error_detail() const {
  const std::lock_guard lock(mutex_);
  return detail_;
}

std::vector<uint8_t> IwarpConnection::private_data() const {
  const std::lock_guard lock(mutex_);
  return private_data_;
}

uint32_t IwarpConnection::qp_number() const { return qp_->number(); }

bool IwarpConnection::change(ConnectionState state, std::string code, std::span<const uint8_t> private_data,
                             std::string detail) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ConnectionState::connecting && state_ != ConnectionState::established) return false;
    if (state_ == state) return false;
    state_ = state;
    code_ = std::move(code);
    detail_ = std::move(detail);
    if (!private_data.empty()) private_data_.assign(private_data.begin(), private_data.end());
  }
  event_.signal();
  return true;
}

void IwarpConnection::bring_up(Wire wire, const Agreement& agreement, const std::vector<uint8_t>& reply) {
  const Gid gid = to_gid(wire.peer());
  if (!qp_->adopt(std::move(wire), agreement, params_.responder_resources, reply)) {
    throw Error("peer_died", "connect", "the peer left, or the queue pair is in use");
  }
  constexpr uint8_t kRnrTimer = 12;
  qp_->modify({.state = QpState::rtr,
               .present = qp_attr::address | qp_attr::path_mtu | qp_attr::dest_qp_num | qp_attr::rq_psn |
                          qp_attr::max_dest_rd_atomic | qp_attr::min_rnr_timer,
               .dest_gid = gid,
               .path_mtu = 4096,
               .dest_qp_num = agreement.peer_qp,
               .max_dest_rd_atomic = params_.responder_resources,
               .min_rnr_timer = kRnrTimer});
  qp_->modify({.state = QpState::rts,
               .present = qp_attr::sq_psn | qp_attr::timeout | qp_attr::retry_count | qp_attr::rnr_retry |
                          qp_attr::max_rd_atomic,
               .max_rd_atomic = params_.initiator_depth,
               .retry_count = params_.retry_count,
               .rnr_retry = params_.rnr_retry});
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
    bring_up(handshake.take_wire(), *agreement, {});
  } catch (const Error& error) {
    return on_failure(error.code());
  }
  change(ConnectionState::established, {}, reply.private_data);
}

void IwarpConnection::on_failure(std::string code, std::string detail) {
  change(ConnectionState::failed, std::move(code), {}, std::move(detail));
}

void IwarpConnection::break_qp() {
  if (const QpState state = qp_->state(); state != QpState::reset && state != QpState::err) {
    try {
      qp_->modify({.state = QpState::err});
    } catch (const Error&) {  // it was closed meanwhile
    }
  }
}

void IwarpConnection::on_lost() {
  if (change(ConnectionState::disconnected, qp_->end_code())) break_qp();
}

void IwarpConnection::disconnect() {
  if (change(ConnectionState::disconnected)) break_qp();
}

IwarpListener::IwarpListener(std::shared_ptr<IwarpContext> context, const std::string& address, int backlog)
    : context_(std::move(context)), backlog_(static_cast<size_t>(std::max(backlog, 1))) {
  const auto addresses = address.empty() ? std::vector{context_->nearby()} : resolve(address, "listen");
  if (Carrier* carrier = context_->carrier()) {
    place_ = carrier->listen(addresses, address);
    address_ = to_text(carrier->address_of(place_));
  } else {
    socket_ = listen_at(addresses, address, std::max(backlog, 1));
    place_ = socket_.get();
    address_ = to_text(local_address(place_));
  }
  context_->add_listener(*this);
}

void IwarpListener::close() {
  std::call_once(closed_, [this] {
    context_->remove_listener(*this);
    socket_.reset();
    while (next()) continue;  // dropped unanswered: rejected
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
