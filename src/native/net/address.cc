#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "util/error.h"

namespace verbena::net {
namespace {

[[noreturn]] void refuse(const char* operation, const std::string& text, const std::string& why) {
  throw Error("unreachable", operation, "'" + text + "': " + why);
}

const sockaddr_in& as_v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

SocketAddress copy_of(const sockaddr* from, size_t length) {
  SocketAddress address;
  std::memcpy(&address.storage, from, std::min(length, sizeof address.storage));
  address.length = static_cast<socklen_t>(length);
  return address;
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? as_v6(*this).sin6_port : as_v4(*this).sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  }
}

std::vector<SocketAddress> resolve(const std::string& text, const char* operation) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse(operation, text, "an address is host:port or [address]:port");
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    refuse(operation, text, "an IPv6 address is written in brackets");
  }
  const bool number =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoul(port) > 65535) refuse(operation, text, "the port is a number from 0 to 65535");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) refuse(operation, text, gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at; at = at->ai_next)
    addresses.push_back(copy_of(at->ai_addr, at->ai_addrlen));
  freeaddrinfo(found);
  if (host.empty()) {
    // IPv6 first: such a socket accepts both.
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const SocketAddress& a) { return a.storage.ss_family == AF_INET6; });
  }
  return addresses;
}

std::string to_text(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = "?";
  const bool v6 = address.storage.ss_family == AF_INET6;
  const void* bytes = v6 ? static_cast<const void*>(&as_v6(address).sin6_addr)
                         : static_cast<const void*>(&as_v4(address).sin_addr);
  inet_ntop(address.storage.ss_family, bytes, host, sizeof host);
  const std::string port = ":" + std::to_string(address.port());
  return v6 ? "[" + std::string(host) + "]" + port : host + port;
}

std::string host_of(const std::string& text) {
  std::string host = text.substr(0, text.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

SocketAddress local_address(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  getsockname(socket, address.get(), &address.length);
  return address;
}

SocketAddress peer_address(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  getpeername(socket, address.get(), &address.length);
  return address;
}

UniqueFd listen_at(const std::vector<SocketAddress>& addresses, const std::string& text, int backlog) {
  int error = EADDRNOTAVAIL;
  for (const SocketAddress& address : addresses) {
    UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.storage.ss_family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(socket.get(), address.get(), address.length) == 0 && ::listen(socket.get(), backlog) == 0)
      return socket;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  const ErrorCode code = error == EADDRINUSE                  ? ErrorCode("address_in_use")
                         : error == EMFILE || error == ENFILE ? ErrorCode("fd_limit")
                                                              : "unreachable";
  throw Error(code, "listen", "'" + text + "'", error);
}

UniqueFd begin_dial(const SocketAddress& to, const SocketAddress* from, uint32_t dead_peer_timeout_ms) {
  UniqueFd socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  set_tcp_options(socket.get(), dead_peer_timeout_ms);
  if (from && from->storage.ss_family == to.storage.ss_family) {
    SocketAddress any_port = *from;
    any_port.set_port(0);
    set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (bind(socket.get(), any_port.get(), any_port.length) != 0) return {};
  }
  if (connect(socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS) return {};
  return socket;
}

void set_tcp_options(int socket, uint32_t dead_peer_timeout_ms) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Keepalive starts after half of the time, with four probes. TCP_USER_TIMEOUT covers unacknowledged data.
  const int seconds = static_cast<int>(dead_peer_timeout_ms / 1000);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(seconds / 2, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(seconds / 8, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(dead_peer_timeout_ms));
}

void disable_pacing_within_host(int socket) {
  if (!same_host(local_address(socket), peer_address(socket))) return;
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return;
  constexpr std::string_view kPacing = "bbr", kAlwaysAvailable = "reno";
  if (!std::string_view(name).starts_with(kPacing)) return;
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kAlwaysAvailable.data(), kAlwaysAvailable.size());
}

std::array<uint8_t, 16> host_bytes(const SocketAddress& address) {
  std::array<uint8_t, 16> bytes{};
  if (address.storage.ss_family == AF_INET) {
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &as_v4(address).sin_addr, 4);
  } else {
    std::memcpy(bytes.data(), &as_v6(address).sin6_addr, 16);
  }
  return bytes;
}

bool same_host(const SocketAddress& one, const SocketAddress& other) {
  return host_bytes(one) == host_bytes(other);
}

std::vector<Interface> interfaces() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  std::vector<Interface> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = found; at; at = at->ifa_next) {
      if (!at->ifa_addr || at->ifa_addr->sa_family != family || !(at->ifa_flags & IFF_UP)) continue;
      SocketAddress address =
          copy_of(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_v6(address).sin6_addr)) continue;
      const bool known = std::any_of(result.begin(), result.end(),
                                     [at](const Interface& seen) { return seen.name == at->ifa_name; });
      if (!known) result.push_back({at->ifa_name, address, (at->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  freeifaddrs(found);
  std::stable_partition(result.begin(), result.end(), [](const Interface& i) { return !i.is_loopback; });
  return result;
}

}  // namespace verbena::net
