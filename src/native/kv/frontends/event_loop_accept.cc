// Accepting the clients of the listening sockets, rejecting those that may not connect, and closing those
// that do not finish to connect.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "kv/frontends/event_loop.h"
#include "util/clock.h"
#include "util/fatal.h"

namespace verbena::kv {

namespace {

// A client that does not finish its TLS handshake, or does not log in although it must, is closed.
constexpr uint64_t kHandshakeNs = 5'000'000'000, kLoginNs = 60'000'000'000;

std::string show(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  const auto& local = reinterpret_cast<const sockaddr_un&>(address);
  return std::string(local.sun_path) + ":0";
}

// Whether a client at "1.2.3.4:5", "[::1]:5" or the name of a local socket is on this machine.
bool is_local(std::string_view address) {
  std::string host(address.substr(0, address.rfind(':')));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return true;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

}  // namespace

void EventLoop::accept(ListeningSocket& listener) {
  for (int i = 0; i < 64; ++i) {
    UniqueFd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      // The connection would stay in the backlog and wake the loop for ever: it is accepted and closed.
      spare_fd_.reset();
      socket = UniqueFd(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket) ++engine_.counters.rejected_connections;
      socket.reset();
      spare_fd_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      continue;
    }
    if (!socket) return;
    try {
      add_client(std::move(socket), listener.tls);
    } catch (const std::exception&) {
      report("accepting a client", "the connection is closed");
      ++engine_.counters.rejected_connections;
    }
  }
}

std::string_view EventLoop::rejection(std::string_view address) {
  std::string_view why;
  if (engine_.clients().size() >= max_clients) {
    why = "-ERR max number of clients reached\r\n";
  } else if (is_protected && !is_local(address)) {
    why =
        "-DENIED Verbena runs in protected mode: no password is set, so only this machine may connect. "
        "Set one (requirepass, or an ACL user), or turn protected-mode off if the network can be "
        "trusted.\r\n";
  }
  engine_.counters.rejected_connections += !why.empty();
  return why;
}

void EventLoop::prepare(Client& client) const {
  client.python_dispatch = new_client_python_dispatch;
  client.unauthenticated = new_client_unauthenticated;
  client.out_limit = new_client_out_limit;
}

void EventLoop::add_client(UniqueFd socket, const std::shared_ptr<net::TlsContext>& tls) {
  const int on = 1, fd = socket.get();
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  sockaddr_storage peer{}, own{};
  socklen_t size = sizeof peer;
  getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size);
  size = sizeof own;
  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  const std::string address = show(peer.ss_family == AF_UNIX ? own : peer);
  if (const std::string_view why = rejection(address); !why.empty()) {
    if (tls) return;  // the client expects a TLS handshake
    [[maybe_unused]] const ssize_t sent = ::send(fd, why.data(), why.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  const SocketKind kind = tls                         ? SocketKind::tls
                          : peer.ss_family == AF_UNIX ? SocketKind::unix_domain
                                                      : SocketKind::tcp;
  auto client = std::make_unique<SocketClient>(*this, engine_.next_client(), std::move(socket), kind);
  if (tls) {
    client->socket.encrypt(tls->accept(fd));
    client->in_tls_handshake = true;
  }
  client->address = address;
  client->local_address = show(own);
  prepare(*client);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = client->id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  const uint64_t now = now_ns();
  if (client->in_tls_handshake) handshake_deadlines_.push_back({now + kHandshakeNs, client->id});
  if (client->unauthenticated) login_deadlines_.push_back({now + kLoginNs, client->id});
  for (auto* list : {&woken_, &writing_}) {
    if (list->capacity() <= clients_.size()) list->reserve(2 * clients_.size() + 1);
  }
  SocketClient& added = *clients_.emplace(client->id, std::move(client)).first->second;
  size_t& count = clients_by_kind_[static_cast<size_t>(kind)];
  ++count;
  try {
    engine_.add(added);
  } catch (...) {
    --count;
    clients_.erase(added.id);
    throw;
  }
}

void EventLoop::close_silent_clients(uint64_t now) {
  const auto close_due = [&](std::deque<Deadline>& deadlines, bool SocketClient::* unfinished) {
    for (; !deadlines.empty() && deadlines.front().due_ns <= now; deadlines.pop_front()) {
      const auto found = clients_.find(deadlines.front().client);
      if (found == clients_.end() || !((*found->second).*unfinished)) continue;
      found->second->close_now = true;
      engine_.schedule_write(*found->second);
    }
  };
  close_due(handshake_deadlines_, &SocketClient::in_tls_handshake);
  close_due(login_deadlines_, &SocketClient::unauthenticated);
}

}  // namespace verbena::kv
