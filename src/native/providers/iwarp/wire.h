// A connected socket, with or without TLS: the system calls that move its bytes. Non-blocking; results are
// those of the calls, with errno. Belongs to one handshake, channel or farewell at a time.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <span>

#include "providers/iwarp/tls.h"
#include "util/fd.h"

namespace verbena::iwarp {

class Wire {
 public:
  Wire() = default;
  explicit Wire(UniqueFd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  TlsSession* tls() const { return tls_.get(); }
  void encrypt(std::unique_ptr<TlsSession> session) { tls_ = std::move(session); }

  // 0: the peer has ended it. A short count says that the socket is empty, but for TLS: ask has_unread().
  ssize_t read(std::span<const iovec> room) {
    return again([&] {
      if (tls_) [[unlikely]]
        return tls_->read(room);
      if (room.size() == 1) return ::recv(socket_.get(), room[0].iov_base, room[0].iov_len, MSG_DONTWAIT);
      return ::readv(socket_.get(), room.data(), static_cast<int>(room.size()));
    });
  }
  ssize_t write(std::span<const iovec> pieces) {
    return again([&] {
      if (tls_) [[unlikely]]
        return tls_->write(pieces);
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces.data());
      message.msg_iovlen = pieces.size();
      return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  ssize_t write(const void* bytes, size_t size) {
    const iovec piece{const_cast<void*>(bytes), size};
    return write({&piece, 1});
  }
  bool has_unread() const { return tls_ && tls_->has_unread(); }
  bool has_unsent() const { return tls_ && tls_->has_unsent(); }  // what write() has taken
  bool flush() { return !tls_ || tls_->flush(); }
  void end_writing() {
    if (tls_) tls_->say_goodbye();
    shutdown(socket_.get(), SHUT_WR);
  }

 private:
  template <typename Call>
  static ssize_t again(Call call) {
    for (;;) {
      const ssize_t result = call();
      if (result >= 0 || errno != EINTR) return result;
    }
  }

  UniqueFd socket_;
  std::unique_ptr<TlsSession> tls_;  // before the socket in destruction
};

inline bool is_not_now(int error_number) { return error_number == EAGAIN || error_number == EWOULDBLOCK; }

}  // namespace verbena::iwarp
