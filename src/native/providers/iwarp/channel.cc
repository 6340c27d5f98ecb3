#include "providers/iwarp/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace verbena::iwarp {
namespace {

// A foreign RNIC expects an FPDU to fit into one TCP segment. Between Verbena ends long FPDUs are cheaper.
size_t choose_mulpdu(const net::StreamSocket& socket, const Agreement& agreement) {
  if (agreement.acknowledged || !socket.has_socket()) return kMaxSegmentPayload;
  int maxseg = 0;
  socklen_t length = sizeof maxseg;
  if (getsockopt(socket.socket(), IPPROTO_TCP, TCP_MAXSEG, &maxseg, &length) != 0 || maxseg <= 0)
    maxseg = 1460;
  const size_t markers =
      agreement.sends_markers ? (static_cast<size_t>(maxseg) / kMarkerInterval + 1) * sizeof(MpaMarker) : 0;
  const size_t overhead = kMpaLengthBytes + sizeof(UntaggedHeader) + kMpaAlignment + kMpaCrcBytes + markers;
  const size_t room = std::max<size_t>(static_cast<size_t>(maxseg), overhead + 128) - overhead;
  return std::min(room, kMaxSegmentPayload) / 4 * 4;
}

}  // namespace

Channel::Channel(net::StreamSocket socket, const Agreement& agreement, uint32_t own_ird, uint8_t rnr_timer,
                 StreamHost& host)
    : stream_socket_(std::move(socket)),
      stream_(agreement, own_ird, choose_mulpdu(stream_socket_, agreement), rnr_timer, host) {}

Channel::Io Channel::read(size_t& bytes) {
  bytes = 0;
  if (stream_.expects_markers()) [[unlikely]]
    return read_marked(bytes);
  // Bytes that TLS has decrypted already must be read now: no epoll event reports them.
  while (bytes < kMaxReadBytes || stream_socket_.has_unread()) {
    iovec room[kMaxRoom];
    const size_t count = stream_.reader().room(room);
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) offered += room[i].iov_len;
    const ssize_t got = stream_socket_.read({room, count});
    if (got < 0) return net::would_block(errno) ? Io::done : Io::lost;
    if (got == 0) return Io::lost;
    bytes += static_cast<size_t>(got);
    moved_ += static_cast<uint64_t>(got);
    stream_.reader().arrived(static_cast<size_t>(got));
    if (!stream_.work()) return Io::blocked;
    if (static_cast<size_t>(got) < offered && stream_socket_.is_empty_after_short_read()) return Io::done;
  }
  return Io::done;
}

Channel::Io Channel::read_marked(size_t& bytes) {
  while (bytes < kMaxReadBytes || stream_socket_.has_unread()) {
    std::byte buffer[16 * 1024];
    const iovec room{buffer, sizeof buffer};
    const ssize_t got = stream_socket_.read({&room, 1});
    if (got < 0) return net::would_block(errno) ? Io::done : Io::lost;
    if (got == 0) return Io::lost;
    bytes += static_cast<size_t>(got);
    moved_ += static_cast<uint64_t>(got);
    if (!stream_.take_marked({buffer, static_cast<size_t>(got)})) return Io::blocked;
  }
  return Io::done;
}

// Returns -1 when the socket is full, -2 when the connection is lost.
ssize_t Channel::write_batch() {
  iovec pieces[kMaxIovecs];
  size_t count = 0;
  for (size_t i = first_; i < count_ && count + kMaxPieces + 2 <= kMaxIovecs; ++i) {
    count += batch_[i].gather(i == first_ ? sent_ : 0, {pieces + count, kMaxIovecs - count});
  }
  const ssize_t written = stream_socket_.write({pieces, count});
  if (written >= 0) return written;
  return net::would_block(errno) ? -1 : -2;
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

bool ClosingConnection::advance(uint64_t now) {
  if (now >= deadline_ns) return true;
  while (sent < output.size()) {
    const ssize_t n = socket.write(output.data() + sent, output.size() - sent);
    if (n < 0) return !net::would_block(errno);
    sent += static_cast<size_t>(n);
  }
  if (!socket.flush()) return !net::would_block(errno);
  if (!is_half_closed) socket.shutdown_write();
  is_half_closed = true;
  // Closing a socket with unread bytes sends a reset, which could discard our last output at the peer.
  for (;;) {
    const ssize_t n = socket.drain();
    if (n > 0) continue;
    return n == 0 || !net::would_block(errno);
  }
}

}  // namespace verbena::iwarp
