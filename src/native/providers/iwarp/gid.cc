#include "providers/iwarp/gid.h"

#include <netinet/in.h>

#include <cstring>

namespace verbena::iwarp {
namespace {

// fd00::/8 is for local use. The rest is our name, the port and, as in a mapped address, the IPv4 address.
constexpr uint8_t kMappedPrefix[8] = {0xfd, 'v', 'e', 'r', 'b', 'e', 'n', 'a'};

}  // namespace

Gid to_gid(const net::SocketAddress& address) {
  Gid gid = net::host_bytes(address);
  if (address.storage.ss_family == AF_INET) {
    std::memcpy(gid.data(), kMappedPrefix, sizeof kMappedPrefix);
    const uint16_t port = htons(address.port());
    std::memcpy(gid.data() + 10, &port, sizeof port);
  }
  return gid;
}

std::optional<net::SocketAddress> to_address(const Gid& gid, uint16_t lid) {
  net::SocketAddress address;
  if (std::memcmp(gid.data(), kMappedPrefix, sizeof kMappedPrefix) == 0) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_port, gid.data() + 10, sizeof v4.sin_port);
    std::memcpy(&v4.sin_addr, gid.data() + 12, sizeof v4.sin_addr);
    address.length = sizeof v4;
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(lid);
    std::memcpy(&v6.sin6_addr, gid.data(), gid.size());
    address.length = sizeof v6;
  }
  return address.port() != 0 ? std::optional(address) : std::nullopt;
}

}  // namespace verbena::iwarp
