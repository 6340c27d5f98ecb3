// Addresses of the connection manager: "host:port", "[v6]:port", ":port" and "" for any port. Splitting is
// pure; looking up a name may query a name server and block.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verbs/types.h"

namespace verbena::ibv {

struct HostPort {
  std::string host;  // empty: the device's own address
  uint16_t port = 0;
};

// Empty when it is none of the forms above.
inline std::optional<HostPort> split_address(std::string_view text) {
  if (text.empty()) return HostPort{};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (!host.empty() && host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address without brackets: ambiguous
  }
  HostPort parts{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parts.port);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  return parts;
}

struct SocketAddress {
  sockaddr_storage storage{};

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sa_family_t family() const { return storage.ss_family; }
  socklen_t size() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }
};

bool is_numeric(const std::string& host);
bool is_any(const SocketAddress& address);       // 0.0.0.0 or ::
bool is_loopback(const SocketAddress& address);  // no RDMA device has one
uint16_t port_of(const SocketAddress& address);
// Throws unreachable for an unknown name.
SocketAddress look_up(const HostPort& where, const char* operation);
// The IP address of a RoCE GID.
SocketAddress address_of(const Gid& gid, uint16_t port);
// The GID of the address from which the kernel would send to this peer; empty when there is no route.
std::optional<Gid> source_towards(const Gid& peer);
// An address of the network interface with this MAC, IPv4 before IPv6; empty when it has none.
std::optional<SocketAddress> interface_address(std::span<const uint8_t, 6> mac, uint16_t port);
std::string text_of(const sockaddr* address);

}  // namespace verbena::ibv
