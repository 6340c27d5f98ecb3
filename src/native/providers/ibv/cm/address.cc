#include "providers/ibv/cm/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "providers/ibv/device/gids.h"
#include "util/error.h"
#include "util/fd.h"

namespace verbena::ibv {
namespace {

constexpr uint16_t kRocePort = 4791;

Gid gid_of(const SocketAddress& address) {
  Gid gid{};
  if (address.family() == AF_INET) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  } else {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, 16);
  }
  return gid;
}

void set_port(SocketAddress& address, uint16_t port) {
  if (address.family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(address.get())->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(address.get())->sin6_port = htons(port);
  }
}

}  // namespace

bool is_numeric(const std::string& host) {
  unsigned char bytes[16];
  // A scope ("fe80::1%eth0") needs no name server either.
  const std::string bare = host.substr(0, host.find('%'));
  return inet_pton(AF_INET, bare.c_str(), bytes) == 1 || inet_pton(AF_INET6, bare.c_str(), bytes) == 1;
}

bool is_any(const SocketAddress& address) {
  if (address.family() == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
}

bool is_loopback(const SocketAddress& address) {
  if (address.family() == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr) >> 24 ==
           IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(address.get())->sin_port
                                           : reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port);
}

SocketAddress look_up(const HostPort& where, const char* operation) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (failure != 0) throw Error("unreachable", operation, "'" + where.host + "': " + gai_strerror(failure));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  if (is_loopback(address)) {
    throw Error(
        "unreachable", operation,
        "'" + where.host + "' is a loopback address, which no RDMA device has; use the device's own address");
  }
  return address;
}

SocketAddress address_of(const Gid& gid, uint16_t port) {
  SocketAddress address;
  if (family_of(gid) == GidFamily::ipv4) {
    auto* in = reinterpret_cast<sockaddr_in*>(address.get());
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    std::memcpy(&in->sin_addr, gid.data() + 12, 4);
  } else {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(address.get());
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    std::memcpy(&in6->sin6_addr, gid.data(), 16);
  }
  return address;
}

std::optional<Gid> source_towards(const Gid& peer) {
  const SocketAddress to = address_of(peer, kRocePort);
  const UniqueFd probe(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Connecting a datagram socket sends nothing; it only consults the routing table.
  if (!probe || ::connect(probe.get(), to.get(), to.size()) != 0) return std::nullopt;
  SocketAddress from;
  socklen_t length = sizeof from.storage;
  if (::getsockname(probe.get(), from.get(), &length) != 0) return std::nullopt;
  return gid_of(from);
}

std::optional<SocketAddress> interface_address(std::span<const uint8_t, 6> mac, uint16_t port) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  const auto with = [&](int family, auto accept) -> const ifaddrs* {
    for (const ifaddrs* entry = first; entry; entry = entry->ifa_next)
      if (entry->ifa_addr && entry->ifa_addr->sa_family == family && accept(*entry)) return entry;
    return nullptr;
  };
  const ifaddrs* link = with(AF_PACKET, [&](const ifaddrs& entry) {
    const auto& hardware = *reinterpret_cast<const sockaddr_ll*>(entry.ifa_addr);
    return hardware.sll_halen == mac.size() && std::equal(mac.begin(), mac.end(), hardware.sll_addr);
  });
  if (!link) return std::nullopt;
  for (const int family : {AF_INET, AF_INET6}) {
    const ifaddrs* found =
        with(family, [&](const ifaddrs& entry) { return std::strcmp(entry.ifa_name, link->ifa_name) == 0; });
    if (!found) continue;
    SocketAddress address;
    std::memcpy(&address.storage, found->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    set_port(address, port);
    return address;
  }
  return std::nullopt;
}

std::string text_of(const sockaddr* address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return (address->sa_family == AF_INET6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

}  // namespace verbena::ibv
