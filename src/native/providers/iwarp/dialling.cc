// Connections on their way: dialled by us, or by peers who reached a listener. A peer is unknown until it has
// named what it wants, and has little time for that. Everything here runs under the context's control mutex.
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
  Call call{std::move(addresses), nullptr, -1, net::host_of(address), options_.dead_peer_timeout_ms};
  auto handshake = std::make_unique<Handshake>(std::move(call), request, tls_.get(), carrier_.get(),
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
  watch(handshake->wire(), Tag::handshake, id, events, EPOLL_CTL_ADD);
  handshakes_[id] = std::move(handshake);
}

void IwarpContext::accept_peers(int listener) {
  for (;;) {
    UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // Asked again with every event, the kernel would say so for ever.
        watch(listener, Tag::listener, static_cast<uint64_t>(listener), 0, EPOLL_CTL_MOD);
        paused_listeners_.insert(listener);
      }
      return;
    }
    net::tune(socket.get(), options_.dead_peer_timeout_ms);
    meet(net::StreamSocket(std::move(socket)), listener);
  }
}

void IwarpContext::accept_streams() {
  const std::lock_guard lock(control_mutex_);
  while (auto arrival = carrier_->next_arrival())
    meet(net::StreamSocket(std::move(arrival->stream)), arrival->place);
}

void IwarpContext::meet(net::StreamSocket wire, int listener) {
  make_room_for_caller();
  const uint64_t patience_ns = uint64_t{options_.handshake_timeout_ms} * 1'000'000;
  auto handshake = std::make_unique<Handshake>(std::move(wire), tls_.get(), now_ns() + patience_ns);
  handshake->listener = listener;
  add_handshake(std::move(handshake));
}

// An honest caller says what it wants at once: in a crowd the one that has been silent longest goes.
void IwarpContext::make_room_for_caller() {
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
      watch(handshake.wire(), Tag::handshake, id, handshake.wants_to_write() ? EPOLLOUT : EPOLLIN,
            EPOLL_CTL_MOD);
      return;
    case Handshake::Progress::done:
      if (!handshake.is_initiator()) return answer(id);
      unwatch(handshake.wire());
      finish_dial(handshake);
      break;
    case Handshake::Progress::refused:
      if (handshake.dial_next()) {
        watch(handshake.wire(), Tag::handshake, id, EPOLLOUT, EPOLL_CTL_ADD);
        return;
      }
      fail_dial(handshake, "unreachable");
      break;
    case Handshake::Progress::broken: {
      const auto [code, detail] = handshake.tls_error();
      fail_dial(handshake, code.empty() ? "unreachable" : code, detail);
      // A close with its request unread would be a reset, and could take our alert away from it.
      unwatch(handshake.wire());
      if (!code.empty() && has_room_for_farewell()) say_goodbye(handshake.take_wire(), {}, false);
      break;
    }
    case Handshake::Progress::malformed:
      fail_dial(handshake, "bad_message");
      break;
    // Both are told in the clear, so that its program can say what is wrong.
    case Handshake::Progress::unencrypted:
    case Handshake::Progress::encrypted:
      unwatch(handshake.wire());
      turn_down(handshake, {}, tls_ ? trailer_flag::needs_tls : uint8_t{0});
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
    if (qp.generation() != handshake.generation) return;  // it was reset, and has called again
    const QpAttributes attributes = qp.attributes();
    const bool welcome =
        !handshake.reply().rejected && agreement && agreement->peer_qp == attributes.dest_qp_num;
    if (!welcome || !qp.adopt(handshake.take_wire(), *agreement, attributes.max_dest_rd_atomic, {})) {
      qp.give_up_seeking();
    }
  });
}

void IwarpContext::fail_dial(Handshake& handshake, const std::string& code, const std::string& detail) {
  if (!handshake.is_initiator()) return;
  if (handshake.connection != 0) {
    const auto found = connections_.find(handshake.connection);
    if (found != connections_.end()) found->second->on_failure(code, detail);
    return;
  }
  with_qp(handshake.qp, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
    if (qp.generation() == handshake.generation) qp.give_up_seeking();
  });
}

// A peer has said what it wants.
void IwarpContext::answer(uint64_t id) {
  auto found = handshakes_.find(id);
  Handshake& handshake = *found->second;
  const auto& named = handshake.request().trailer;
  if (handshake.listener == node_place_ && named && (named->flags & trailer_flag::by_endpoint)) {
    if (answer_seeker(handshake)) {
      handshakes_.erase(id);
    } else if (may_park(handshake)) {
      handshake.parked = true;
      handshake.set_deadline(kNoDeadline);
      // All that matters now is whether it leaves: bytes out of turn would wake us for ever.
      watch(handshake.wire(), Tag::handshake, id, EPOLLRDHUP, EPOLL_CTL_MOD);
    } else {
      handshakes_.erase(id);
    }
    return;
  }
  unwatch(handshake.wire());
  std::unique_ptr<Handshake> owned = std::move(found->second);
  handshakes_.erase(found);
  const auto listener = listeners_.find(owned->listener);
  // A full backlog looks like nobody: the socket is closed without a word.
  if (listener != listeners_.end()) listener->second->push(std::move(owned));
}

// A request for a queue pair that is there, but not ready. It waits without a deadline, so few may.
bool IwarpContext::may_park(const Handshake& handshake) const {
  size_t all = 0, for_this = 0;
  for (const auto& [id, other] : handshakes_) {
    if (!other->parked) continue;
    ++all;
    if (other->request().trailer->to_qp == handshake.request().trailer->to_qp) ++for_this;
  }
  return all < options_.max_handshakes && for_this < kMaxParked;
}

bool IwarpContext::answer_seeker(Handshake& handshake) {
  const SetUpFrame& request = handshake.request();
  const PrivateTrailer& named = *request.trailer;
  const Gid gid = gid_of(named);
  const auto origin = to_address(gid, named.port);
  auto welcome = IwarpQueuePair::Welcome::never;
  // Who names another's address than its own is after a queue pair that is not meant for it.
  if (origin && net::same_host(*origin, handshake.wire().peer())) {
    with_qp(named.to_qp, [&](soft::SoftQueuePair& soft_qp) {
      auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
      welcome = qp.welcomes(gid, named.from_qp);
      if (welcome != IwarpQueuePair::Welcome::now) return;
      const QpAttributes attributes = qp.attributes();
      SetUpFrame reply =
          reply_to(request, options_.wants_crc(), attributes.max_dest_rd_atomic, attributes.max_rd_atomic);
      reply.trailer = trailer(qp.number(), named.from_qp, trailer_flag::by_endpoint);
      reply.markers = options_.markers;
      const auto agreement = agree(request, reply, false);
      unwatch(handshake.wire());
      if (agreement)
        qp.adopt(handshake.take_wire(), *agreement, attributes.max_dest_rd_atomic, encode(reply));
    });
  }
  if (welcome == IwarpQueuePair::Welcome::later) return false;
  if (welcome == IwarpQueuePair::Welcome::never) {
    unwatch(handshake.wire());
    turn_down(handshake, {});
  }
  return true;
}

// A QP went to RTR: its peer has called already, or is to be called by the one of the two with the higher
// name.
void IwarpContext::find_peer_of(uint32_t number) {
  std::erase_if(handshakes_, [&](const auto& entry) { return entry.second->qp == number; });
  for (auto at = handshakes_.begin(); at != handshakes_.end();) {
    Handshake& handshake = *at->second;
    const bool for_it = handshake.parked && handshake.request().trailer->to_qp == number;
    const bool over = for_it && (handshake.is_abandoned() || answer_seeker(handshake));
    at = over ? handshakes_.erase(at) : std::next(at);
  }
  bool is_alone = false;
  QpAttributes attributes;
  uint32_t generation = 0;
  with_qp(number, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<IwarpQueuePair&>(soft_qp);
    generation = qp.generation();
    attributes = qp.attributes();
    is_alone = qp.welcomes(attributes.dest_gid, attributes.dest_qp_num) == IwarpQueuePair::Welcome::now;
  });
  if (!is_alone) return;
  const auto peer = std::pair(attributes.dest_gid, attributes.dest_qp_num);
  const auto own = std::pair(to_gid(node_address_), number);
  if (own < peer) return;
  const auto address = to_address(attributes.dest_gid, attributes.dest_lid);
  std::unique_ptr<Handshake> handshake;
  if (address && own != peer) {
    SetUpFrame request = first_request(2, options_, attributes.max_dest_rd_atomic, attributes.max_rd_atomic);
    request.trailer = trailer(number, attributes.dest_qp_num, trailer_flag::by_endpoint);
    Call call{{*address},
              &interface_.address,
              node_place_,
              net::host_of(net::to_text(*address)),
              options_.dead_peer_timeout_ms};
    handshake =
        std::make_unique<Handshake>(std::move(call), request, tls_.get(), carrier_.get(), kNoDeadline);
    handshake->qp = number;
    handshake->generation = generation;
    if (!handshake->dial_next()) handshake.reset();
  }
  if (handshake) return add_handshake(std::move(handshake));
  with_qp(number, [](soft::SoftQueuePair& qp) { static_cast<IwarpQueuePair&>(qp).give_up_seeking(); });
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
