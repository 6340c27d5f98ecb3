#include "providers/iwarp/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace verbena::iwarp {

Handshake::Handshake(std::vector<SocketAddress> to, const SocketAddress* from, const SetUpFrame& request,
                     uint64_t deadline_ns)
    : to_(std::move(to)),
      from_(from),
      initiator_(true),
      connecting_(true),
      deadline_ns_(deadline_ns),
      request_(request),
      out_(encode(request)),
      reader_(true) {
  std::reverse(to_.begin(), to_.end());
}

Handshake::Handshake(UniqueFd socket, uint64_t deadline_ns)
    : from_(nullptr),
      socket_(std::move(socket)),
      initiator_(false),
      connecting_(false),
      deadline_ns_(deadline_ns),
      reader_(false) {}

bool Handshake::dial_next() {
  connecting_ = true;
  while (!to_.empty()) {
    const SocketAddress next = to_.back();
    to_.pop_back();
    socket_ = begin_dial(next, from_);
    if (socket_) return true;
  }
  return false;
}

Handshake::Progress Handshake::advance() {
  if (connecting_) {
    SocketAddress peer;
    peer.length = sizeof peer.storage;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Progress::refused;
    if (getpeername(socket_.get(), peer.get(), &peer.length) != 0) return Progress::pending;
    connecting_ = false;
  }
  while (sent_ < out_.size()) {
    const ssize_t n =
        ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Progress::pending : Progress::broken;
    sent_ += static_cast<size_t>(n);
  }
  for (;;) {
    uint8_t bytes[kMpaMaxPrivate];
    const ssize_t n = ::recv(socket_.get(), bytes, std::min(reader_.wanted(), sizeof bytes), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Progress::pending : Progress::broken;
    if (n == 0) return Progress::broken;
    switch (reader_.take({bytes, static_cast<size_t>(n)})) {
      case FrameReader::Event::more:
        continue;
      case FrameReader::Event::malformed:
        return Progress::malformed;
      case FrameReader::Event::done:
        (initiator_ ? reply_ : request_) = reader_.frame();
        return Progress::done;
    }
  }
}

bool Handshake::is_abandoned() const {
  uint8_t byte;
  const ssize_t n = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace verbena::iwarp
