#include "providers/quic/stream.h"

#include <sys/epoll.h>

#include <cerrno>

namespace verbena::quic {

QuicStream::~QuicStream() {
  const std::lock_guard lock(engine_->mutex());
  const std::shared_ptr<Connection> connection = std::move(state_->connection);
  connection->release(*state_);
  engine_->finish();
  // The block pool is guarded by the lock, and the connection may have dropped the stream before.
  state_->in.clear();
  if (state_.use_count() == 1) state_->out.clear();
}

net::ByteStream::Step QuicStream::handshake() {
  const std::lock_guard lock(engine_->mutex());
  if (is_gone()) {
    set_error();
    return Step::failed;
  }
  return state_->id >= 0 ? Step::done : Step::wants_write;
}

ssize_t QuicStream::read(std::span<const iovec> room) {
  const std::lock_guard lock(engine_->mutex());
  StreamState& state = *state_;
  Connection& connection = *state.connection;
  // The progress thread reads only when something has arrived; any other thread polls the socket.
  if (state.in.size() == 0 && !state.is_ended && !is_gone() && !engine_->is_progress_thread()) {
    engine_->receive_from(*connection.endpoint());
  }
  const size_t taken = state.in.take(room);
  if (taken > 0) {
    connection.consumed(state, taken);
    engine_->finish();
    return static_cast<ssize_t>(taken);
  }
  if (is_gone()) {
    set_error();
    errno = ECONNRESET;
    return -1;
  }
  if (state.is_ended) return 0;
  errno = EAGAIN;
  return -1;
}

ssize_t QuicStream::write(std::span<const iovec> pieces) {
  const std::lock_guard lock(engine_->mutex());
  StreamState& state = *state_;
  if (is_gone()) {
    set_error();
    errno = ECONNRESET;
    return -1;
  }
  const size_t limit = state.connection->send_limit();
  size_t taken = 0;
  for (const iovec& piece : pieces) {
    const size_t room = state.out.size() < limit ? limit - state.out.size() : 0;
    const size_t n = std::min(piece.iov_len, room);
    state.out.append(static_cast<const std::byte*>(piece.iov_base), n);
    taken += n;
    if (n < piece.iov_len) break;
  }
  if (taken == 0) {
    errno = EAGAIN;
    return -1;
  }
  state.connection->has_output(state);
  return static_cast<ssize_t>(taken);
}

bool QuicStream::flush() {
  const std::lock_guard lock(engine_->mutex());
  if (is_gone()) {
    set_error();
    errno = ECONNRESET;
    return false;
  }
  engine_->touch(*state_->connection);
  engine_->finish();
  return true;
}

void QuicStream::shutdown_write() {
  const std::lock_guard lock(engine_->mutex());
  if (is_gone()) return;
  state_->wants_end = true;
  state_->connection->has_output(*state_);
  engine_->touch(*state_->connection);
  engine_->finish();
}

std::string QuicStream::cipher() const {
  const std::lock_guard lock(engine_->mutex());
  return state_->connection->cipher();
}

void QuicStream::watch(uint64_t key, uint32_t events) {
  const std::lock_guard lock(engine_->mutex());
  engine_->watch(*state_, key, events);
}

bool QuicStream::has_room() const {
  const std::lock_guard lock(engine_->mutex());
  return is_gone() || state_->has_room();
}

size_t QuicStream::unconfirmed() const {
  const std::lock_guard lock(engine_->mutex());
  return state_->out.size();
}

bool QuicStream::is_abandoned() const {
  const std::lock_guard lock(engine_->mutex());
  return is_gone() || state_->is_ended;
}

SocketAddress QuicStream::peer() const {
  const std::lock_guard lock(engine_->mutex());
  return state_->connection->peer();
}

void QuicStream::set_error() {
  const EndReason& reason = state_->connection->end_reason();
  // A stream that only the peer has reset does not describe the connection's end.
  code_ = state_->connection->is_alive() || reason.code == "peer_died" ? ErrorCode() : reason.code;
  detail_ = reason.detail;
}

}  // namespace verbena::quic
