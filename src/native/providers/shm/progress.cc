// The progress thread of a shm context: handles control messages, drives queue pairs that no program thread
// polls, and runs timers. It never runs Python and never holds the last reference to an object of the
// program.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>

#include "providers/shm/context.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::shm {
namespace {

constexpr int kMessagesAtOnce = 64;
constexpr int kStallCheckMs = 1, kWaitCheckMs = 2, kDeadlineCheckMs = 20, kRetryCheckMs = 100,
              kHelloCheckMs = 500;
constexpr size_t kMaxSilentLinks = 64;  // of peers that have not sent their hello

}  // namespace

void ShmContext::run(const std::stop_token& stop) {
  int timeout_ms = -1;
  while (!stop.stop_requested()) {
    epoll_event events[32];
    const int count = epoll_wait(progress_.epoll(), events, std::size(events), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == progress_.doorbell()) {
        progress_.clear_doorbell();
        continue;
      }
      std::shared_ptr<Link> link;
      bool is_listener = fd == node_socket_.get();
      {
        const std::lock_guard lock(control_mutex_);
        if (const auto found = links_.find(fd); found != links_.end()) link = found->second;
        is_listener = is_listener || listeners_.contains(fd);
      }
      if (link) {
        read_link(link);
      } else if (is_listener) {
        accept_links(fd);
      }
    }
    timeout_ms = tick();
  }
}

int ShmContext::tick() {
  const uint64_t now = now_ns();
  int next_ms = progress_.check_polled_queues();
  const auto within = [&next_ms](int ms) { next_ms = std::min(next_ms, ms); };
  for_each_qp([&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<ShmQueuePair&>(soft_qp);
    qp.drive_and_arm();
    qp.check_timers(now);
    // Work in progress without a doorbell is checked often: a polling thread that stopped may have requested
    // none.
    within(qp.is_stalled() || qp.is_blocked()   ? kStallCheckMs
           : qp.is_waiting() && !qp.is_polled() ? kWaitCheckMs
                                                : kRetryCheckMs);
  });
  std::vector<std::shared_ptr<Link>> dead;
  {
    const std::lock_guard lock(control_mutex_);
    for (auto& [connection_id, connection] : connections_) {
      if (!connection->is_connecting()) continue;
      connection->check_deadline(now);
      within(kDeadlineCheckMs);
    }
    for (auto& [socket, link] : links_) {
      if (link->flush()) within(kWaitCheckMs);
      if (!link->ready()) within(kHelloCheckMs);
      if (!link->alive() || link->is_silent(now)) dead.push_back(link);
    }
  }
  for (const auto& link : dead) remove_link(link);
  return next_ms == INT_MAX ? -1 : next_ms;
}

// If too many peers have not sent their hello, closes the link of the one that connected first.
void ShmContext::close_silent_link() {
  std::shared_ptr<Link> first;
  {
    const std::lock_guard lock(control_mutex_);
    size_t silent = 0;
    for (const auto& [socket, link] : links_) {
      if (link->ready() || !link->dialled().empty()) continue;
      ++silent;
      if (!first || link->opened_ns() < first->opened_ns()) first = link;
    }
    if (silent < kMaxSilentLinks) return;
  }
  remove_link(first);
}

void ShmContext::accept_links(int listener) {
  for (;;) {
    UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno != EMFILE && errno != ENFILE) return;
    if (!socket) {
      // No descriptor is left. The connection would stay in the backlog and epoll would report it without
      // end: accept it with the spare descriptor and close it.
      spare_fd_.reset();
      socket.reset(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      socket.reset();
      spare_fd_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      return;
    }
    close_silent_link();
    try {
      add_link(std::move(socket), "");
    } catch (const Error&) {
      return;  // no descriptor is left: the peer's socket is closed
    }
  }
}

void ShmContext::read_link(const std::shared_ptr<Link>& link) {
  for (int i = 0; i < kMessagesAtOnce; ++i) {  // epoll reports the rest again
    ControlMessage message;
    switch (receive_message(link->socket(), message)) {
      case Received::nothing:
        return;
      case Received::message:
        try {
          if (handle(link, message)) continue;
        } catch (const Error&) {
          // No descriptor or address space is left: without what was sent, the link is unusable.
        }
        [[fallthrough]];
      case Received::closed:
      case Received::malformed:
        remove_link(link);
        return;
    }
  }
}

// False: the peer violated the protocol, and the link must be closed.
bool ShmContext::handle(const std::shared_ptr<Link>& link, ControlMessage& message) {
  const MessageKind kind = message.header.kind;
  if (kind == MessageKind::hello) {
    if (message.header.version != kControlVersion || !link->take_hello(message)) return false;
    control_changed_.notify_all();
    return true;
  }
  if (!link->ready()) return false;
  switch (kind) {
    case MessageKind::access:
      return link->take_access(message);
    case MessageKind::arena:
      return link->take_arena(message);
    case MessageKind::arena_gone: {
      const Mapping unused = link->drop_arena(static_cast<uint32_t>(message.header.argument));
      SoftContext::quiesce();  // no queue pair uses the arena after this
      return true;
    }
    case MessageKind::wake:
      return true;  // tick() drives the queue pairs
    case MessageKind::claim:
      handle_claim(link, message);
      return true;
    case MessageKind::claimed:
      handle_claimed(link, message);
      return true;
    case MessageKind::attach:
      return handle_proved_attach(link, message);
    case MessageKind::attached:
      handle_attached(link, message);
      return true;
    case MessageKind::connect:
      handle_connect(link, message);
      return true;
    case MessageKind::accept:
    case MessageKind::reject:
    case MessageKind::established:
    case MessageKind::disconnect:
      handle_for_connection(link, message);
      return true;
    case MessageKind::hello:
    case MessageKind::refuse:
      break;
  }
  return false;
}

void ShmContext::handle_attach(const std::shared_ptr<Link>& link, ControlMessage& message) {
  UniqueFd ring;
  with_qp(message.header.to_qp, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<ShmQueuePair&>(soft_qp);
    if (!message.fds[0] || qp.state() == QpState::err || qp.is_managed()) return;
    UniqueFd own = qp.share_ring();
    if (qp.bind_peer(link, message.fds[0].get(), message.header.from_qp)) ring = std::move(own);
  });
  link->send({.kind = MessageKind::attached,
              .from_qp = message.header.to_qp,
              .to_qp = message.header.from_qp,
              .argument = ring ? 0u : 1u,
              .fds = {ring.get(), -1}});
  const std::lock_guard lock(control_mutex_);
  control_changed_.notify_all();
}

void ShmContext::handle_attached(const std::shared_ptr<Link>& link, ControlMessage& message) {
  {
    const std::lock_guard lock(control_mutex_);
    const auto waiting = attaching_.find(message.header.to_qp);
    if (waiting == attaching_.end() || waiting->second.link != link.get()) return;  // not requested
  }
  bool bound = false;
  with_qp(message.header.to_qp, [&](soft::SoftQueuePair& soft_qp) {
    auto& qp = static_cast<ShmQueuePair&>(soft_qp);
    bound = message.fds[0] && qp.bind_peer(link, message.fds[0].get(), message.header.from_qp);
  });
  const std::lock_guard lock(control_mutex_);
  const auto waiting = attaching_.find(message.header.to_qp);
  if (!bound && waiting != attaching_.end()) waiting->second.refused = true;
  control_changed_.notify_all();
}

void ShmContext::handle_connect(const std::shared_ptr<Link>& link, ControlMessage& message) {
  const std::lock_guard lock(control_mutex_);
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(), [&](const auto& entry) {
    return entry.second->service() == message.service();
  });
  const auto data = message.private_data();
  const bool waiting = listener != listeners_.end() && message.fds[0] &&
                       listener->second->push({.link = link,
                                               .connection_id = message.header.connection_id,
                                               .peer_qp = message.header.from_qp,
                                               .ring = std::move(message.fds[0]),
                                               .private_data = {data.begin(), data.end()}});
  if (waiting) return;
  link->send({.kind = MessageKind::reject, .connection_id = message.header.connection_id, .argument = 1});
}

void ShmContext::handle_for_connection(const std::shared_ptr<Link>& link, ControlMessage& message) {
  const std::lock_guard lock(control_mutex_);
  const auto found = connections_.find(message.header.connection_id);
  if (found == connections_.end() || !found->second->is_on(*link)) {
    // The initiator has given up: the acceptor must not wait for it.
    if (message.header.kind == MessageKind::accept) {
      link->send({.kind = MessageKind::disconnect, .connection_id = message.header.connection_id ^ 1});
    }
    return;
  }
  ShmConnection& connection = *found->second;
  switch (message.header.kind) {
    case MessageKind::accept:
      connection.on_accept(link, message);
      break;
    case MessageKind::reject:
      connection.on_reject(message);
      break;
    case MessageKind::established:
      connection.on_established();
      break;
    default:
      connection.on_disconnect();
      break;
  }
}

void ShmContext::remove_link(const std::shared_ptr<Link>& link) {
  link->fail();
  {
    const std::lock_guard lock(control_mutex_);
    epoll_ctl(progress_.epoll(), EPOLL_CTL_DEL, link->socket(), nullptr);
    links_.erase(link->socket());
    std::erase_if(links_by_address_, [&](const auto& entry) { return entry.second.lock() == link; });
    for (auto& [connection_id, connection] : connections_) {
      if (connection->is_on(*link)) connection->on_link_failed();
    }
    control_changed_.notify_all();
  }
  for_each_qp([&](soft::SoftQueuePair& qp) { static_cast<ShmQueuePair&>(qp).link_failed(*link); });
}

}  // namespace verbena::shm
