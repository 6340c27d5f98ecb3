#include "providers/ibv/cm/connection.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "providers/ibv/device/gids.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"

namespace verbena::ibv {

void check_private_data(size_t size, PrivateData message, const IbvContext& context, const char* operation) {
  constexpr size_t kInfiniBand[] = {56, 196, 148};
  constexpr size_t kIwarp = 255;  // the protocol allows 512, the library's counter does not
  const size_t limit = context.is_iwarp() ? kIwarp : kInfiniBand[static_cast<size_t>(message)];
  if (size > limit) {
    throw Error("limit_exceeded", operation,
                "private data is limited to " + std::to_string(limit) + " bytes here");
  }
}

std::vector<uint8_t> sent_data(const std::vector<uint8_t>& received, const IbvContext& context) {
  if (context.is_iwarp()) return received;
  const auto last = std::find_if(received.rbegin(), received.rend(), [](uint8_t byte) { return byte != 0; });
  return {received.begin(), last.base()};
}

SocketAddress own_address(const IbvContext& context, uint16_t port) {
  const DeviceAttributes device = context.query();
  if (context.is_iwarp() && !device.ports.empty() && !device.ports[0].gids.empty()) {
    // An iWARP GID is not an address: it begins with the MAC of the network interface, which has one.
    const std::span mac(device.ports[0].gids[0].data(), 6);
    if (const auto found = interface_address(mac.first<6>(), port)) return *found;
  }
  const Options& options = context.options();
  for (size_t i = 0; i < device.ports.size(); ++i) {
    const PortAttributes& candidate = device.ports[i];
    if (options.port > 0 && i + 1 != static_cast<size_t>(options.port)) continue;
    if (candidate.link_layer == "InfiniBand") continue;
    const auto asked = static_cast<size_t>(options.gid_index);
    if (options.gid_index >= 0 && asked < candidate.gids.size())
      return address_of(candidate.gids[asked], port);
    const auto index = public_gid(candidate);
    if (!index) continue;
    if (const Gid& gid = candidate.gids[*index]; family_of(gid) != GidFamily::link_local)
      return address_of(gid, port);
  }
  Gid any_ipv4{};
  any_ipv4[10] = any_ipv4[11] = 0xff;
  return address_of(any_ipv4, port);
}

std::shared_ptr<IbvQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp, const IbvContext& context,
                                         size_t private_bytes, PrivateData message, const char* operation) {
  check_private_data(private_bytes, message, context, operation);
  auto own = std::dynamic_pointer_cast<IbvQueuePair>(qp);
  if (!own || &own->context() != &context)
    throw Error("invalid_argument", operation, "the queue pair must belong to this context");
  if (const QpState state = own->state(); state != QpState::reset && state != QpState::init)
    throw Error("bad_transition", operation, "the queue pair must be in RESET or INIT");
  return own;
}

IbvConnection::IbvConnection(std::shared_ptr<IbvContext> context, std::shared_ptr<IbvQueuePair> qp,
                             std::string peer, const ConnectParams& params)
    : context_(std::move(context)),
      qp_(std::move(qp)),
      peer_(std::move(peer)),
      params_(params),
      deadline_ns_(now_ns() + params.timeout_ms * kMillisecond) {}

IbvConnection::~IbvConnection() {
  disconnect();
  if (id_) context_->loop().destroy_id(id_);
}

ConnectionState IbvConnection::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

ErrorCode IbvConnection::error_code() const {
  const std::lock_guard lock(mutex_);
  return code_;
}

std::string IbvConnection::error_detail() const {
  const std::lock_guard lock(mutex_);
  if (state_ != ConnectionState::connecting && code_ != ErrorCode("connect_timeout")) return {};
  if (!is_resolved_) return "no answer to ARP or neighbour discovery for the peer's address";
  const bool is_roce = context_->limits().transport == "RoCE";
  return std::string("no answer to the connection request") +
         (is_roce ? "; RoCE v2 needs UDP port 4791 in both directions" : "");
}

std::vector<uint8_t> IbvConnection::private_data() const {
  const std::lock_guard lock(mutex_);
  return private_data_;
}

uint64_t IbvConnection::deadline_ns() const {
  const std::lock_guard lock(mutex_);
  return state_ == ConnectionState::connecting ? deadline_ns_ : kNoDeadline;
}

bool IbvConnection::is_over() const {
  return state_ != ConnectionState::connecting && state_ != ConnectionState::established;
}

void IbvConnection::change(ConnectionState state, ErrorCode code) {
  state_ = state;
  code_ = code;
  changed_.signal();
}

int IbvConnection::milliseconds_left() const {
  const uint64_t now = now_ns();
  return now >= deadline_ns_ ? 1 : static_cast<int>((deadline_ns_ - now) / kMillisecond + 1);
}

void IbvConnection::start(const std::string& address) {
  const auto where = split_address(address);
  if (!where || where->port == 0)
    throw Error("unreachable", "connect", "'" + address + "' is neither host:port nor [address]:port");
  qp_->set_connection(shared_from_this());
  {
    const std::lock_guard lock(mutex_);
    id_ = context_->loop().create_id(shared_from_this(), "connect");
  }
  context_->loop().deadlines_changed();
  if (where->host.empty() || is_numeric(where->host)) {
    resolve_soon(where->host.empty() ? own_address(*context_, where->port) : look_up(*where, "connect"));
    return;
  }
  // A name server may be slow and the query cannot be interrupted: so it runs on a detached thread.
  std::thread([weak = weak_from_this(), name = *where] {
    SocketAddress to;
    try {
      to = look_up(name, "connect");
    } catch (const Error& error) {
      if (const auto self = weak.lock()) self->fail(error.code());
      return;
    } catch (const std::exception&) {
      end_process("resolving a name");
    }
    if (const auto self = weak.lock()) self->resolve_soon(to);
  }).detach();
}

void IbvConnection::resolve_soon(const SocketAddress& to) {
  context_->loop().call_soon([weak = weak_from_this(), to] {
    if (const auto self = weak.lock()) self->resolve(to);
  });
}

void IbvConnection::resolve(const SocketAddress& to) {
  ErrorCode failure;
  {
    const std::lock_guard lock(mutex_);
    if (!id_) return;
    to_ = is_any(to) ? own_address(*context_, port_of(to)) : to;
    try {
      resolve_address();
    } catch (const Error& error) {
      failure = error.code();
    }
  }
  if (!failure.empty()) fail(failure);
}

void IbvConnection::fail(ErrorCode code) {
  rdma_cm_id* id = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ConnectionState::connecting) return;
    if (is_beyond_init_) qp_->move_to_err();
    change(ConnectionState::failed, code);
    id = std::exchange(id_, nullptr);
  }
  if (id) context_->loop().destroy_id(id);
}

void IbvConnection::on_removal() {
  rdma_cm_id* id = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!is_over()) {
      if (is_beyond_init_) qp_->move_to_err();
      const bool was_up = state_ == ConnectionState::established;
      change(was_up ? ConnectionState::disconnected : ConnectionState::failed,
             was_up ? ErrorCode() : "no_device");
    }
    id = std::exchange(id_, nullptr);
  }
  if (id) context_->loop().destroy_id(id);
}

void IbvConnection::disconnect() {
  rdma_cm_id* cancelled = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (is_over()) return;
    if (is_beyond_init_) qp_->move_to_err();
    if (state_ == ConnectionState::established) {
      library().rdma_disconnect(id_);
    } else {
      cancelled = std::exchange(id_, nullptr);
    }
    change(ConnectionState::disconnected);
  }
  if (cancelled) context_->loop().destroy_id(cancelled);
}

}  // namespace verbena::ibv
