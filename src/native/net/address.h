// Addresses as text ("host:port", "[v6]:port", ":0"), as sockaddr and as GIDs; listening and connecting
// sockets.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "util/fd.h"

namespace verbena::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  uint16_t port() const;
  void set_port(uint16_t port);
};

// All addresses that the text resolves to; without a host, every local one. Throws `unreachable`.
std::vector<SocketAddress> resolve(const std::string& text, const char* operation);
std::string to_text(const SocketAddress& address);
std::string host_of(const std::string& text);  // of "host:port", without brackets

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);

// A listening socket on the first address that can be bound. Throws address_in_use or unreachable.
UniqueFd listen_at(const std::vector<SocketAddress>& addresses, const std::string& text, int backlog);
// Starts a non-blocking connect, from `from` if given. Empty: it failed at once.
UniqueFd begin_dial(const SocketAddress& to, const SocketAddress* from, uint32_t dead_peer_timeout_ms);
// Disables Nagle's algorithm; a peer that acknowledges nothing for `dead_peer_timeout_ms` is given up.
void set_tcp_options(int socket, uint32_t dead_peer_timeout_ms);
// For a connected socket: replaces BBR within one host, where its pacing timers would double the transfer
// time.
void disable_pacing_within_host(int socket);

// The 16 bytes of an IPv6 address; an IPv4 address in its mapped form.
std::array<uint8_t, 16> host_bytes(const SocketAddress& address);
bool same_host(const SocketAddress& one, const SocketAddress& other);

struct Interface {
  std::string name;
  SocketAddress address;
  bool is_loopback = false;
};

// Interfaces that are up and have an address, the loopback last.
std::vector<Interface> interfaces();

}  // namespace verbena::net
