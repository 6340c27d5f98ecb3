#include "providers/quic/endpoint.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "util/error.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace verbena::quic {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr size_t kEthernetPayload = 1452;  // of a UDP datagram, with IPv6 headers
constexpr size_t kLoopbackPayload = 16'000;
constexpr int kLoopbackMtu = 65535;  // the limit of IPv4, one less than the interface's MTU

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

const sockaddr_in& v4(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in&>(a.storage); }
const sockaddr_in6& v6(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in6&>(a.storage); }

bool is_unspecified(const SocketAddress& a) {
  if (a.storage.ss_family == AF_INET) return v4(a).sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&v6(a).sin6_addr);
}

template <typename Value>
void put(msghdr& message, cmsghdr*& at, int level, int type, const Value& value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  message.msg_controllen += CMSG_SPACE(sizeof value);
  at = reinterpret_cast<cmsghdr*>(reinterpret_cast<char*>(at) + CMSG_SPACE(sizeof value));
}

template <typename Value>
Value value_of(const cmsghdr* at) {
  Value value;
  std::memcpy(&value, CMSG_DATA(at), sizeof value);
  return value;
}

}  // namespace

bool same_address(const SocketAddress& one, const SocketAddress& other) {
  return one.storage.ss_family == other.storage.ss_family && one.port() == other.port() &&
         net::same_host(one, other);
}

Endpoint::Endpoint(const std::vector<SocketAddress>& addresses, const std::string& text) {
  int error = EADDRNOTAVAIL;
  for (const SocketAddress& address : addresses) {
    const int family = address.storage.ss_family;
    UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    if (family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (bind(socket.get(), address.get(), address.length) == 0) {
      socket_ = std::move(socket);
      break;
    }
    error = errno;
    if (error == EADDRINUSE) break;
  }
  if (!socket_) {
    const ErrorCode code = error == EADDRINUSE                  ? ErrorCode("address_in_use")
                           : error == EMFILE || error == ENFILE ? ErrorCode("fd_limit")
                                                                : "unreachable";
    throw Error(code, "listen", "'" + text + "'", error);
  }
  address_ = net::local_address(socket_.get());
  is_wildcard_ = is_unspecified(address_);
  const int fd = socket_.get();
  set(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  set(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  set(fd, SOL_UDP, UDP_GRO, 1);
  if (address_.storage.ss_family == AF_INET6) {
    set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set(fd, IPPROTO_IPV6, IPV6_RECVERR, 1);
    set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  }
  set(fd, IPPROTO_IP, IP_PKTINFO, 1);  // also for IPv4 datagrams on an IPv6 socket
  set(fd, IPPROTO_IP, IP_RECVERR, 1);
  set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  int bytes = 0;
  socklen_t length = sizeof bytes;
  getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length);
  receive_buffer_bytes_ = static_cast<size_t>(std::max(bytes, 0));
}

size_t Endpoint::receive_batch(std::span<Received> out) {
  if (!slots_) slots_ = std::make_unique_for_overwrite<std::byte[]>(kBatch * kSlotBytes);
  mmsghdr messages[kBatch]{};
  iovec pieces[kBatch];
  alignas(cmsghdr) char control[kBatch][128];
  for (size_t i = 0; i < kBatch; ++i) {
    pieces[i] = {slots_.get() + i * kSlotBytes, kSlotBytes};
    msghdr& message = messages[i].msg_hdr;
    message.msg_iov = &pieces[i];
    message.msg_iovlen = 1;
    message.msg_name = &out[i].route.remote.storage;
    message.msg_namelen = sizeof out[i].route.remote.storage;
    message.msg_control = control[i];
    message.msg_controllen = sizeof control[i];
  }
  int count;
  do count = recvmmsg(socket_.get(), messages, kBatch, MSG_DONTWAIT, nullptr);
  while (count < 0 &&
         (errno == EINTR || errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == EMSGSIZE));
  if (count <= 0) return 0;
  for (int i = 0; i < count; ++i) {
    Received& received = out[static_cast<size_t>(i)];
    msghdr& message = messages[i].msg_hdr;
    received.bytes = {slots_.get() + static_cast<size_t>(i) * kSlotBytes, messages[i].msg_len};
    received.segment = std::max<size_t>(messages[i].msg_len, 1);
    received.route.remote.length = message.msg_namelen;
    received.route.local = address_;
    bytes_in += messages[i].msg_len;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_level == SOL_UDP && at->cmsg_type == UDP_GRO) {
        received.segment = static_cast<size_t>(std::max(value_of<int>(at), 1));
      } else if (!is_wildcard_) {
        continue;
      } else if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO &&
                 address_.storage.ss_family == AF_INET) {
        reinterpret_cast<sockaddr_in&>(received.route.local.storage).sin_addr =
            value_of<in_pktinfo>(at).ipi_addr;
      } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO) {
        reinterpret_cast<sockaddr_in6&>(received.route.local.storage).sin6_addr =
            value_of<in6_pktinfo>(at).ipi6_addr;
      }
    }
  }
  return static_cast<size_t>(count);
}

bool Endpoint::next_error(SocketAddress& out) {
  for (;;) {
    std::byte ignored[64];
    iovec piece{ignored, sizeof ignored};
    alignas(cmsghdr) char control[512];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_name = &out.storage;
    message.msg_namelen = sizeof out.storage;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket_.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return false;
    out.length = message.msg_namelen;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
      const bool is_error = (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_RECVERR) ||
                            (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_RECVERR);
      if (is_error && value_of<sock_extended_err>(at).ee_errno == ECONNREFUSED) return true;
    }
  }
}

void Endpoint::send(const Route& route, std::span<const std::byte> bytes, size_t segment) {
  if (waiting_.empty() && try_send(route, bytes, segment)) return;
  if (waiting_.size() >= kMaxWaiting) {
    ++dropped_out;
    return;
  }
  waiting_.push_back({route, {bytes.begin(), bytes.end()}, segment});
}

bool Endpoint::flush() {
  while (!waiting_.empty()) {
    const Waiting& first = waiting_.front();
    if (!try_send(first.route, first.bytes, first.segment)) return false;
    waiting_.pop_front();
  }
  return true;
}

// False: the socket is full. What cannot be sent at all is dropped, as in a network.
bool Endpoint::try_send(const Route& route, std::span<const std::byte> bytes, size_t segment) {
  const bool in_one = bytes.size() <= segment || segments_;
  for (std::span<const std::byte> left = bytes; !left.empty();) {
    const std::span<const std::byte> now = in_one ? left : left.first(std::min(segment, left.size()));
    iovec piece{const_cast<std::byte*>(now.data()), now.size()};
    alignas(cmsghdr) char control[128]{};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(route.remote.get());
    message.msg_namelen = route.remote.length;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    auto* at = reinterpret_cast<cmsghdr*>(control);
    if (now.size() > segment) put(message, at, SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment));
    if (is_wildcard_ && route.local.length != 0 && !is_unspecified(route.local)) {
      if (route.local.storage.ss_family == AF_INET) {
        in_pktinfo info{};
        info.ipi_spec_dst = v4(route.local).sin_addr;
        put(message, at, IPPROTO_IP, IP_PKTINFO, info);
      } else {
        in6_pktinfo info{};
        info.ipi6_addr = v6(route.local).sin6_addr;
        put(message, at, IPPROTO_IPV6, IPV6_PKTINFO, info);
      }
    }
    if (message.msg_controllen == 0) message.msg_control = nullptr;
    ssize_t sent = -1;
    // An error of an earlier datagram is reported by the next call.
    for (int tries = 0; tries < 3 && sent < 0; ++tries) {
      sent = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) return false;
      if (sent < 0 && errno != ECONNREFUSED && errno != EINTR && errno != EHOSTUNREACH) break;
    }
    if (sent < 0 && now.size() > segment && (errno == EIO || errno == EINVAL)) {
      segments_ = false;  // the interface does not support it: one datagram at a time from now on
      return try_send(route, left, segment);
    }
    if (sent < 0) {
      ++dropped_out;
    } else {
      datagrams_out += (now.size() + segment - 1) / segment;
      bytes_out += now.size();
    }
    left = left.subspan(now.size());
  }
  return true;
}

size_t max_datagram_bytes(const SocketAddress& remote) {
  const UniqueFd probe(::socket(remote.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || connect(probe.get(), remote.get(), remote.length) != 0) return kEthernetPayload;
  const bool is_v6 = remote.storage.ss_family == AF_INET6;
  int mtu = 0;
  socklen_t length = sizeof mtu;
  getsockopt(probe.get(), is_v6 ? IPPROTO_IPV6 : IPPROTO_IP, is_v6 ? IPV6_MTU : IP_MTU, &mtu, &length);
  return mtu >= kLoopbackMtu ? kLoopbackPayload : kEthernetPayload;
}

}  // namespace verbena::quic
