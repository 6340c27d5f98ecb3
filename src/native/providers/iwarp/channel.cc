#include "providers/iwarp/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace verbena::iwarp {
namespace {

// A foreign RNIC wants an FPDU to fit into a TCP segment; between ourselves long ones are cheaper.
size_t choose_mulpdu(int socket, bool acknowledged) {
  if (acknowledged) return kMaxSegmentPayload;
  int maxseg = 0;
  socklen_t length = sizeof maxseg;
  if (getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &maxseg, &length) != 0 || maxseg <= 0) maxseg = 1460;
  const size_t overhead = kMpaLengthBytes + sizeof(UntaggedHeader) + kMpaAlignment + kMpaCrcBytes;
  const size_t room = std::max<size_t>(static_cast<size_t>(maxseg), overhead + 128) - overhead;
  return std::min(room, kMaxSegmentPayload) / 4 * 4;
}

}  // namespace

Channel::Channel(UniqueFd socket, const Agreement& agreement, uint32_t own_ird, uint8_t rnr_timer,
                 StreamHost& host)
    : socket_(std::move(socket)),
      stream_(agreement, own_ird, choose_mulpdu(socket_.get(), agreement.acknowledged), rnr_timer, host) {}

Channel::Io Channel::read(size_t& bytes) {
  bytes = 0;
  while (bytes < kFairShare) {
    iovec room[kMaxPieces + 1];
    const size_t count = stream_.reader().room(room);
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) offered += room[i].iov_len;
    const ssize_t got = count == 1 ? ::recv(socket_.get(), room[0].iov_base, room[0].iov_len, MSG_DONTWAIT)
                                   : ::readv(socket_.get(), room, static_cast<int>(count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Io::done : Io::lost;
    if (got == 0) return Io::lost;
    bytes += static_cast<size_t>(got);
    moved_ += static_cast<uint64_t>(got);
    stream_.reader().arrived(static_cast<size_t>(got));
    if (!stream_.work()) return Io::blocked;
    if (static_cast<size_t>(got) < offered) return Io::done;
  }
  return Io::done;
}

// -1: not now; -2: never.
ssize_t Channel::write_batch() {
  iovec pieces[kMaxIovecs];
  size_t count = 0;
  for (size_t i = first_; i < count_ && count + kMaxPieces + 2 <= kMaxIovecs; ++i) {
    count += batch_[i].gather(i == first_ ? sent_ : 0, {pieces + count, kMaxIovecs - count});
  }
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  for (;;) {
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written >= 0) return written;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
  }
}

bool Channel::has_room() const {
  pollfd room{socket_.get(), POLLOUT, 0};
  return ::poll(&room, 1, 0) != 0;
}

std::vector<std::byte> Channel::rest_of_segment() const {
  std::vector<std::byte> rest;
  if (first_ == count_ || sent_ == 0) return rest;
  iovec pieces[kMaxPieces + 2];
  const size_t count = batch_[first_].gather(sent_, pieces);
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
    rest.insert(rest.end(), from, from + pieces[i].iov_len);
  }
  return rest;
}

bool Farewell::advance(uint64_t now) {
  if (now >= deadline_ns) return true;
  while (said < words.size()) {
    const ssize_t n =
        ::send(socket.get(), words.data() + said, words.size() - said, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
    said += static_cast<size_t>(n);
  }
  if (!half_closed) shutdown(socket.get(), SHUT_WR);
  half_closed = true;
  // A close with bytes unread would be a reset, and could take our last words away from the peer.
  for (;;) {
    std::byte ignored[4096];
    const ssize_t n = ::recv(socket.get(), ignored, sizeof ignored, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

}  // namespace verbena::iwarp
