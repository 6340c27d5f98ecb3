// A connected socket, with or without TLS, or a stream without a socket: reading, writing and shutting down.
// Non-blocking; results are those of the system calls, with errno. Owned by one handshake, channel or closing
// connection at a time.
#pragma once

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <span>

#include "net/byte_stream.h"
#include "util/fd.h"

namespace verbena::net {

class StreamSocket {
 public:
  StreamSocket() = default;
  explicit StreamSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  explicit StreamSocket(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  int socket() const { return socket_.get(); }
  bool has_socket() const { return static_cast<bool>(socket_); }
  explicit operator bool() const { return socket_ || stream_; }
  ByteStream* stream() const { return stream_.get(); }  // nullptr: a plain socket
  void encrypt(std::unique_ptr<ByteStream> session) { stream_ = std::move(session); }
  SocketAddress peer() const { return socket_ ? peer_address(socket_.get()) : stream_->peer(); }

  // 0: the peer has closed its direction.
  ssize_t read(std::span<const iovec> room) {
    return retry_on_eintr([&] {
      if (stream_) [[unlikely]]
        return stream_->read(room);
      if (room.size() == 1) return ::recv(socket_.get(), room[0].iov_base, room[0].iov_len, MSG_DONTWAIT);
      return ::readv(socket_.get(), room.data(), static_cast<int>(room.size()));
    });
  }
  ssize_t write(std::span<const iovec> pieces) {
    return retry_on_eintr([&] {
      if (stream_) [[unlikely]]
        return stream_->write(pieces);
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces.data());
      message.msg_iovlen = pieces.size();
      return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  ssize_t write(const void* bytes, size_t size) {
    if (stream_) [[unlikely]] {
      const iovec piece{const_cast<void*>(bytes), size};
      return write({&piece, 1});
    }
    return retry_on_eintr([&] { return ::send(socket_.get(), bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL); });
  }
  bool is_empty_after_short_read() const { return !stream_ || stream_->is_empty_after_short_read(); }
  bool has_unread() const { return stream_ && stream_->has_unread(); }
  bool has_unsent() const { return stream_ && stream_->has_unsent(); }  // bytes that write() has copied
  bool buffers_writes() const { return stream_ != nullptr; }  // write() may keep bytes until flush()
  // Bytes that the peer has not acknowledged; while they decrease, the peer is alive.
  size_t unconfirmed() const {
    if (!socket_) return stream_->unconfirmed();
    int bytes = 0;
    return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
  }
  bool flush() { return !stream_ || stream_->flush(); }
  // Whether write() would take bytes now.
  bool has_room() const {
    if (!socket_) return stream_->has_room();
    pollfd room{socket_.get(), POLLOUT, 0};
    return ::poll(&room, 1, 0) != 0;
  }
  void shutdown_write() {
    if (stream_) stream_->shutdown_write();
    if (socket_) shutdown(socket_.get(), SHUT_WR);
  }
  // Reads and discards, below TLS. 0: the peer has closed its direction.
  ssize_t drain() {
    std::byte ignored[4096];
    const iovec room{ignored, sizeof ignored};
    return retry_on_eintr([&] {
      return socket_ ? ::recv(socket_.get(), ignored, sizeof ignored, MSG_DONTWAIT)
                     : stream_->read({&room, 1});
    });
  }
  // Checks without reading, because unread bytes (early data of the peer, or TLS records) may precede the
  // end.
  bool is_abandoned() const {
    if (!socket_) return stream_->is_abandoned();
    pollfd peer{socket_.get(), POLLRDHUP, 0};
    return ::poll(&peer, 1, 0) > 0;
  }

 private:
  template <typename Function>
  static ssize_t retry_on_eintr(Function call) {
    for (;;) {
      const ssize_t result = call();
      if (result >= 0 || errno != EINTR) return result;
    }
  }

  UnsharedFd socket_;
  std::unique_ptr<ByteStream> stream_;  // before the socket in destruction
};

inline bool would_block(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

}  // namespace verbena::net
