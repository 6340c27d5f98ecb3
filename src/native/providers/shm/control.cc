#include "providers/shm/control.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <fstream>

#include "util/error.h"

namespace verbena::shm {
namespace {

struct SocketAddress {
  sockaddr_un storage{};
  socklen_t length = 0;
};

SocketAddress abstract_address(const std::string& name) {
  SocketAddress address;
  address.storage.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.storage.sun_path) {
    throw Error("invalid_argument", "resolve address", "the name is too long: " + name);
  }
  std::memcpy(address.storage.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

UniqueFd make_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error("fd_limit", "open control socket", "socket() failed", errno);
  return fd;
}

// The uid that the kernel reports for users which this user namespace does not map; it identifies no user
// there. Empty in the initial user namespace, where all users are mapped.
std::optional<uid_t> overflow_uid() {
  unsigned long first = 1, outside = 1, count = 0;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  if (first == 0 && outside == 0 && count == UINT32_MAX) return std::nullopt;
  uid_t uid = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> uid;
  return uid;
}

const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

std::string_view ControlMessage::service() const {
  return {reinterpret_cast<const char*>(payload.data()), header.service_length};
}

std::span<const uint8_t> ControlMessage::private_data() const {
  return std::span(payload).subspan(header.service_length);
}

Sent send_message(int socket, const OutgoingMessage& message) {
  const ControlHeader header{.magic = kControlMagic,
                             .version = kControlVersion,
                             .kind = message.kind,
                             .from_qp = message.from_qp,
                             .to_qp = message.to_qp,
                             .connection_id = message.connection_id,
                             .argument = message.argument,
                             .service_length = static_cast<uint16_t>(message.service.size()),
                             .private_length = static_cast<uint16_t>(message.private_data.size()),
                             .unused = 0};
  iovec parts[] = {{const_cast<ControlHeader*>(&header), sizeof header},
                   {const_cast<char*>(message.service.data()), message.service.size()},
                   {const_cast<uint8_t*>(message.private_data.data()), message.private_data.size()}};
  msghdr envelope{};
  envelope.msg_iov = parts;
  envelope.msg_iovlen = std::size(parts);

  size_t count = 0;
  while (count < message.fds.size() && message.fds[count] >= 0) ++count;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof message.fds)] = {};
  if (count > 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&envelope);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), message.fds.data(), count * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &envelope, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0 ? Sent::done : errno == EAGAIN ? Sent::busy : Sent::gone;
}

void send_wake(int socket) {
  const ControlHeader header{.magic = kControlMagic, .version = kControlVersion, .kind = MessageKind::wake};
  // The flags of the descriptor are this process's own: a peer cannot make this call block.
  send(socket, &header, sizeof header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

UnsentMessage::UnsentMessage(const OutgoingMessage& message)
    : message_(message),
      service_(message.service),
      private_data_(message.private_data.begin(), message.private_data.end()) {
  for (size_t i = 0; i < fds_.size(); ++i) {
    if (message.fds[i] >= 0) fds_[i] = UniqueFd(fcntl(message.fds[i], F_DUPFD_CLOEXEC, 0));
  }
}

OutgoingMessage UnsentMessage::view() const {
  OutgoingMessage message = message_;
  message.service = service_;
  message.private_data = private_data_;
  message.fds = {fds_[0].get(), fds_[1].get()};
  return message;
}

Received receive_message(int socket, ControlMessage& out) {
  out.payload.resize(kMaxPayload);
  iovec parts[] = {{&out.header, sizeof out.header}, {out.payload.data(), out.payload.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 2)] = {};
  msghdr envelope{};
  envelope.msg_iov = parts;
  envelope.msg_iovlen = std::size(parts);
  envelope.msg_control = control;
  envelope.msg_controllen = sizeof control;
  ssize_t length;
  do {
    length = recvmsg(socket, &envelope, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (length < 0 && errno == EINTR);
  if (length < 0) return errno == EAGAIN ? Received::nothing : Received::closed;
  if (length == 0) return Received::closed;

  size_t taken = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&envelope); part; part = CMSG_NXTHDR(&envelope, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      UniqueFd owned(fd);
      if (taken < out.fds.size()) out.fds[taken++] = std::move(owned);
    }
  }
  const ControlHeader& header = out.header;
  const auto size = static_cast<size_t>(length);
  if ((envelope.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || size < sizeof header ||
      header.magic != kControlMagic || header.service_length > kMaxServiceName ||
      header.private_length > kMaxPrivateData ||
      size != sizeof header + header.service_length + header.private_length) {
    return Received::malformed;
  }
  out.payload.resize(size - sizeof header);
  return Received::message;
}

std::string node_address(const Gid& gid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "verbena-shm-";
  for (const uint8_t byte : gid) name += {kDigits[byte >> 4], kDigits[byte & 15]};
  return name;
}

std::string service_address(std::string_view service) {
  // The user is part of the name: a user cannot take the names of another.
  return "verbena-shm/" + std::to_string(geteuid()) + "/" + std::string(service);
}

UniqueFd listen_at(const std::string& name, int backlog) {
  const SocketAddress address = abstract_address(name);
  UniqueFd fd = make_socket();
  if (bind(fd.get(), as_sockaddr(address), address.length) != 0) {
    throw Error(errno == EADDRINUSE ? ErrorCode("address_in_use") : "invalid_argument", "listen",
                "cannot bind " + name, errno);
  }
  if (listen(fd.get(), backlog) != 0) throw Error("invalid_argument", "listen", "listen() failed", errno);
  return fd;
}

UniqueFd dial(const std::string& name) {
  const SocketAddress address = abstract_address(name);
  UniqueFd fd = make_socket();
  int result;
  do {
    result = connect(fd.get(), as_sockaddr(address), address.length);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? std::move(fd) : UniqueFd();
}

std::optional<int> trusted_peer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid())
    return std::nullopt;
  static const std::optional<uid_t> unmapped = overflow_uid();
  if (peer.uid == unmapped) return std::nullopt;
  return peer.pid;
}

}  // namespace verbena::shm
