// Handshakes in progress, as initiator and as responder. A peer is unknown until its MPA request is complete,
// and has little time for that. Everything here runs under the context's control_mutex_.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "providers/iwarp/context.h"
#include "providers/iwarp/gid.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::iwarp {
namespace {

constexpr uint64_t kNoDeadline = UINT64_MAX;

Gid gid_of(const PrivateTrailer& trailer) {
  Gid gid;
  std::memcpy(gid.data(), trailer.gid, gid.size());
  return gid;
}

SetUpFrame first_request(uint8_t revision, const Options& options, uint16_t ird, uint16_t ord) {
  SetUpFrame request;
  request.revision = revision;
  request.crc = options.wants_crc();
  request.markers = options.markers;
  if (revision < 2) return request;
  request.ird = ird;
  request.ord = ord;
  request.peer_to_peer = request.offers_write = request.offers_read = true;
  return request;
}

}  // namespace

std::shared_ptr<Connection> IwarpContext::connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                                  const ConnectParams& params) {
  std::vector<net::SocketAddress> addresses = net::resolve(address, "connect");
  auto managed = managed_qp(qp, params);
  auto connection = std::make_shared<IwarpConnection>(
      std::static_pointer_cast<IwarpContext>(shared_from_this()), managed, address, params);
  SetUpFrame request =
      first_request(options_.mpa_revision, options_, params.responder_resources, params.initiator_depth);
  if (options_.acknowledged) request.trailer = trailer(managed->number(), 0, 0);
  request.private_data = params.private_data;
  DialTarget target{std::move(addresses), nullptr, -1, net::host_of(address), options_.dead_peer_timeout_ms};
  auto handshake = std::make_unique<Handshake>(std::move(target), request, tls_.get(), transport_.get(),
                                               connection->deadline_ns());
  handshake->connection = connection->id();
  add_connection(*connection);
  const std::lock_guard lock(control_mutex_);
  if (handshake->dial_next()) {
    add_handshake(std::move(handshake));
  } else {
    connection->on_failure("unreachable");
  }
  wake();
  return connection;
}

void IwarpContext::add_handshake(std::unique_ptr<Handshake> handshake) {
  const uint64_t id = next_id_++;
  const uint32_t events = handshake->wants_to_write() ? EPOLLOUT : EPOLLIN;
  watch(handshake->stream_socket(), Tag::handshake, id, events, EPOLL_CTL_ADD);
  handshakes_[id] = std::move(handshake);
}

void IwarpContext::accept_peers(int listener) {
  for (;;) {
    UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The event would be reported again at once, without end: pause this listener until the next tick.
        watch(listener, Tag::listener, static_cast<uint64_t>(listener), 0, EPOLL_CTL_MOD);
        paused_listeners_.insert(listener);
      }
      return;
    }
    net::set_tcp_options(socket.get(), options_.dead_peer_timeout_ms);
    accept_peer(net::StreamSocket(std::move(socket)), listener, options_.handshake_timeout_ms);
  }
}

void IwarpContext::accept_streams() {
  const std::lock_guard lock(control_mutex_);
  while (auto incoming = transport_->next_incoming())
    accept_peer(net::StreamSocket(std::move(incoming->stream)), incoming->endpoint_id,
                options_.handshake_timeout_ms);
}

void IwarpContext::take_over(UniqueFd socket, int listener, uint32_t timeout_ms) {
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  net::set_tcp_options(socket.get(), options_.dead_peer_timeout_ms);
  {
    const std::lock_guard lock(control_mutex_);
    if (!listeners_.contains(listener)) return;
    accept_peer(net::StreamSocket(std::move(socket)), listener,
                std::min(timeout_ms, options_.handshake_timeout_ms));
  }
  wake();  // the next check of deadlines may be a second away
}

void IwarpContext::accept_peer(net::StreamSocket socket, int listener, uint32_t timeout_ms) {
  evict_silent_handshake();
  const uint64_t timeout_ns = uint64_t{timeout_ms} * 1'000'000;
  auto handshake = std::make_unique<Handshake>(std::move(socket), tls_.get(), now_ns() + timeout_ns);
  handshake->listener = listener;
  add_handshake(std::move(handshake));
}

// An honest peer sends its request at once. When there are too many handshakes, the one that has been silent
// longest is dropped.
void IwarpContext::evict_silent_handshake() {
  const auto is_silent = [](const auto& entry) {
    return !entry.second->is_initiator() && !entry.second->parked;
  };
  const auto silent = std::count_if(handshakes_.begin(), handshakes_.end(), is_silent);
  if (static_cast<uint64_t>(silent) < options_.max_handshakes) return;
  handshakes_.erase(std::find_if(handshakes_.begin(), handshakes_.end(), is_silent));
}

void IwarpContext::advance_handshake(uint64_t id) {
  const auto found = handshakes_.find(id);
  if (found == handshakes_.end()) return;
  Handshake& handshake = *found->second;
  if (handshake.parked) {
    if (handshake.is_abandoned()) handshakes_.erase(found);
    return;
  }
  switch (handshake.advance()) {
    case Handshake::Progress::pending:
      watch(handshake.stream_socket(), Tag::handshake, id, handshake.wants_to_write() ? EPOLLOUT : EPOLLIN,
            EPOLL_CTL_MOD);
      return;
    case Handshake::Progress::done:
      if (!handshake.is_initiator()) return answer_request(id);
      unwatch(handshake.stream_socket());
      finish_dial(handshake);
      break;
    case Handshake::Progress::refused:
      if (handshake.dial_next()) {
        watch(handshake.stream_socket(), Tag::handshake, id, EPOLLOUT, EPOLL_CTL_ADD);
        return;
      }
      fail_dial(handshake, "unreachable");
      break;
    case Handshake::Progress::broken: {
      const auto [code, detail] = handshake.tls_error();
      fail_dial(handshake, code.empty() ? ErrorCode("unreachable") : code, detail);
      // Closing a socket with unread bytes sends a reset, which could discard our TLS alert at the peer.
      unwatch(handshake.stream_socket());
      if (!code.empty() && may_close_gracefully()) close_gracefully(handshake.take_socket(), {}, false);
      break;
    }
    case Handshake::Progress::malformed:
      fail_dial(handshake, "bad_message");
      break;
    // Both are rejected in clear text, so that the peer can report what is wrong.
    case Handshake::Progress::unencrypted:
    case Handshake::Progress::encrypted:
      unwatch(handshake.stream_socket());
      reject(handshake, {}, tls_ ? trailer_flag::needs_tls : uint8_t{0});
      break;
  }
  handshakes_.erase(id);
}

void IwarpContext::finish_dial(Handshake& handshake) {
  if (handshake.connection != 0) {
    const auto found = connections_.find(handshake.connection);
    if (found != connections_.end()) found->second->on_reply(handshake);
    return;
  }
  const auto agreement = agree(handshake.request(), handshake.reply(), true);
  with_qp(handshake.qp, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
    if (qp.generation() != handshake.generation) return;  // it was reset, and searches its peer again
    const QpAttributes attributes = qp.attributes();
    const bool is_accepted =
        !handshake.reply().rejected && agreement && agreement->peer_qp == attributes.dest_qp_num;
    if (!is_accepted || !qp.adopt(handshake.take_socket(), *agreement, attributes.max_dest_rd_atomic, {})) {
      qp.peer_unreachable();
    }
  });
}

void IwarpContext::fail_dial(Handshake& handshake, ErrorCode code, const std::string& detail) {
  if (!handshake.is_initiator()) return;
  if (handshake.connection != 0) {
    const auto found = connections_.find(handshake.connection);
    if (found != connections_.end()) found->second->on_failure(code, detail);
    return;
  }
  with_qp(handshake.qp, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
    if (qp.generation() == handshake.generation) qp.peer_unreachable();
  });
}

// The peer's request is complete.
void IwarpContext::answer_request(uint64_t id) {
  auto found = handshakes_.find(id);
  Handshake& handshake = *found->second;
  const auto& named = handshake.request().trailer;
  if (handshake.listener == node_endpoint_id_ && named && (named->flags & trailer_flag::by_endpoint)) {
    if (answer_endpoint_request(handshake)) {
      handshakes_.erase(id);
    } else if (may_park(handshake)) {
      handshake.parked = true;
      handshake.set_deadline(kNoDeadline);
      // Only the end of the connection matters from here on; watching for bytes too would wake the thread
      // without end.
      watch(handshake.stream_socket(), Tag::handshake, id, EPOLLRDHUP, EPOLL_CTL_MOD);
    } else {
      handshakes_.erase(id);
    }
    return;
  }
  unwatch(handshake.stream_socket());
  std::unique_ptr<Handshake> owned = std::move(found->second);
  handshakes_.erase(found);
  const auto listener = listeners_.find(owned->listener);
  // A full backlog looks like a closed port: the socket is closed without a reply.
  if (listener != listeners_.end()) listener->second->push(std::move(owned));
}

// For a request whose queue pair exists but is not ready. It waits without a deadline, so only few may wait.
bool IwarpContext::may_park(const Handshake& handshake) const {
  size_t all = 0, for_this = 0;
  for (const auto& [id, other] : handshakes_) {
    if (!other->parked) continue;
    ++all;
    if (other->request().trailer->to_qp == handshake.request().trailer->to_qp) ++for_this;
  }
  return all < options_.max_handshakes && for_this < kMaxParked;
}

bool IwarpContext::answer_endpoint_request(Handshake& handshake) {
  const SetUpFrame& request = handshake.request();
  const PrivateTrailer& named = *request.trailer;
  const Gid gid = gid_of(named);
  const auto origin = to_address(gid, named.port);
  auto admission = IwarpQueuePair::Admission::never;
  // A request whose GID is not the address that it came from may be an attempt to take over another peer's
  // queue pair.
  if (origin && net::same_host(*origin, handshake.stream_socket().peer())) {
    with_qp(named.to_qp, [&](soft::SoftQueuePair& soft_qp) {
      auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
      admission = qp.admits(gid, named.from_qp);
      if (admission != IwarpQueuePair::Admission::now) return;
      const QpAttributes attributes = qp.attributes();
      SetUpFrame reply =
          reply_to(request, options_.wants_crc(), attributes.max_dest_rd_atomic, attributes.max_rd_atomic);
      reply.trailer = trailer(qp.number(), named.from_qp, trailer_flag::by_endpoint);
      reply.markers = options_.markers;
      const auto agreement = agree(request, reply, false);
      unwatch(handshake.stream_socket());
      if (agreement)
        qp.adopt(handshake.take_socket(), *agreement, attributes.max_dest_rd_atomic, encode(reply));
    });
  }
  if (admission == IwarpQueuePair::Admission::later) return false;
  if (admission == IwarpQueuePair::Admission::never) {
    unwatch(handshake.stream_socket());
    reject(handshake, {});
  }
  return true;
}

// A queue pair went to RTR: either its peer's request waits already, or the end with the higher (GID, number)
// dials the other.
void IwarpContext::find_peer_of(uint32_t number) {
  std::erase_if(handshakes_, [&](const auto& entry) { return entry.second->qp == number; });
  for (auto at = handshakes_.begin(); at != handshakes_.end();) {
    Handshake& handshake = *at->second;
    const bool for_it = handshake.parked && handshake.request().trailer->to_qp == number;
    const bool over = for_it && (handshake.is_abandoned() || answer_endpoint_request(handshake));
    at = over ? handshakes_.erase(at) : std::next(at);
  }
  bool accepts_now = false;
  QpAttributes attributes;
  uint32_t generation = 0;
  with_qp(number, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
    generation = qp.generation();
    attributes = qp.attributes();
    accepts_now = qp.admits(attributes.dest_gid, attributes.dest_qp_num) == IwarpQueuePair::Admission::now;
  });
  if (!accepts_now) return;
  const auto peer = std::pair(attributes.dest_gid, attributes.dest_qp_num);
  const auto own = std::pair(to_gid(node_address_), number);
  if (own < peer) return;
  const auto address = to_address(attributes.dest_gid, attributes.dest_lid);
  std::unique_ptr<Handshake> handshake;
  if (address && own != peer) {
    SetUpFrame request = first_request(2, options_, attributes.max_dest_rd_atomic, attributes.max_rd_atomic);
    request.trailer = trailer(number, attributes.dest_qp_num, trailer_flag::by_endpoint);
    DialTarget target{{*address},
                      &interface_.address,
                      node_endpoint_id_,
                      net::host_of(net::to_text(*address)),
                      options_.dead_peer_timeout_ms};
    handshake =
        std::make_unique<Handshake>(std::move(target), request, tls_.get(), transport_.get(), kNoDeadline);
    handshake->qp = number;
    handshake->generation = generation;
    if (!handshake->dial_next()) handshake.reset();
  }
  if (handshake) return add_handshake(std::move(handshake));
  with_qp(number, [](soft::SoftQueuePair& qp) { static_cast<IwarpQueuePair&>(qp).peer_unreachable(); });
}

bool IwarpContext::is_wanted(const Handshake& handshake) {
  if (handshake.connection != 0) {
    const auto found = connections_.find(handshake.connection);
    return found != connections_.end() && found->second->is_connecting();
  }
  if (!handshake.parked && handshake.qp == 0) return true;
  const uint32_t number = handshake.parked ? uint32_t{handshake.request().trailer->to_qp} : handshake.qp;
  bool wanted = false;
  with_qp(number,
          [&](soft::SoftQueuePair& qp) { wanted = handshake.parked || soft::can_respond(qp.state()); });
  return wanted;
}

void IwarpContext::check_handshakes(uint64_t now) {
  for (auto at = handshakes_.begin(); at != handshakes_.end();) {
    Handshake& handshake = *at->second;
    const bool late = now >= handshake.deadline_ns();
    if (late) fail_dial(handshake, "connect_timeout");
    at = late || !is_wanted(handshake) ? handshakes_.erase(at) : std::next(at);
  }
}

}  // namespace verbena::iwarp
