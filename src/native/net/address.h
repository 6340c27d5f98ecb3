// Addresses as people write them ("host:port", "[v6]:port", ":0"), as sockets and as GIDs; sockets on them.
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

// All addresses that the text stands for; no host means every local one. Throws `unreachable`.
std::vector<SocketAddress> resolve(const std::string& text, const char* operation);
std::string to_text(const SocketAddress& address);
std::string host_of(const std::string& text);  // of such a text, without brackets

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);

// A listening socket on the first address that allows it. Throws address_in_use or unreachable.
UniqueFd listen_at(const std::vector<SocketAddress>& addresses, const std::string& text, int backlog);
// Begins to connect, from `from` if given; empty when that fails at once.
UniqueFd begin_dial(const SocketAddress& to, const SocketAddress* from, uint32_t dead_peer_timeout_ms);
// Small segments leave at once, and a peer that answers nothing for so long is given up.
void tune(int socket, uint32_t dead_peer_timeout_ms);
// For a connected socket: within one host there is no path to be careful with, and BBR's timers take half of
// the time.
void forgo_pacing(int socket);

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
