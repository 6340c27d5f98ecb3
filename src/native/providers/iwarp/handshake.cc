#include "providers/iwarp/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace verbena::iwarp {
namespace {

constexpr uint8_t kTlsHandshakeRecord = 22;

}  // namespace

Handshake::Handshake(DialTarget target, const SetUpFrame& request, net::TlsContext* tls,
                     StreamTransport* transport, uint64_t deadline_ns)
    : target_(std::move(target)),
      tls_(tls),
      transport_(transport),
      initiator_(true),
      connecting_(true),
      is_secure_(!tls && !transport),
      deadline_ns_(deadline_ns),
      request_(request),
      out_(encode(request)),
      reader_(true) {
  std::reverse(target_.to.begin(), target_.to.end());
}

Handshake::Handshake(net::StreamSocket socket, net::TlsContext* tls, uint64_t deadline_ns)
    : tls_(tls),
      transport_(nullptr),
      stream_socket_(std::move(socket)),
      initiator_(false),
      connecting_(false),
      is_tls_detected_(!stream_socket_.has_socket()),
      is_secure_(!tls),
      deadline_ns_(deadline_ns),
      reader_(false) {}

bool Handshake::dial_next() {
  connecting_ = true;
  while (!target_.to.empty()) {
    const net::SocketAddress next = target_.to.back();
    target_.to.pop_back();
    stream_socket_ =
        transport_ ? net::StreamSocket(transport_->dial(next, target_.from_endpoint_id, target_.host))
                   : net::StreamSocket(net::begin_dial(next, target_.from, target_.dead_peer_timeout_ms));
    if (stream_socket_) return true;
  }
  return false;
}

bool Handshake::wants_to_write() const {
  if (connecting_) return true;
  if (!is_secure_) return tls_wants_to_write_;
  return initiator_ && (sent_ < out_.size() || stream_socket_.has_unsent());
}

std::pair<ErrorCode, std::string> Handshake::tls_error() const {
  const net::ByteStream* session = stream_socket_.stream();
  return session ? std::pair(session->error_code(), session->error_detail())
                 : std::pair<ErrorCode, std::string>();
}

Handshake::Progress Handshake::advance() {
  if (connecting_ && transport_) {
    connecting_ = false;
  } else if (connecting_) {
    net::SocketAddress peer;
    peer.length = sizeof peer.storage;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(stream_socket_.socket(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Progress::refused;
    if (getpeername(stream_socket_.socket(), peer.get(), &peer.length) != 0) return Progress::pending;
    connecting_ = false;
    if (tls_) stream_socket_.encrypt(tls_->connect(stream_socket_.socket(), target_.host));
  }
  if (!initiator_ && !is_tls_detected_) {
    if (const Progress met = detect_tls(); met != Progress::done) return met;
  }
  if (!is_secure_) {
    if (const Progress secured = advance_tls(); secured != Progress::done) return secured;
  }
  while (sent_ < out_.size()) {
    const ssize_t n = stream_socket_.write(out_.data() + sent_, out_.size() - sent_);
    if (n < 0) return net::would_block(errno) ? Progress::pending : Progress::broken;
    sent_ += static_cast<size_t>(n);
  }
  if (!stream_socket_.flush()) return net::would_block(errno) ? Progress::pending : Progress::broken;
  for (;;) {
    uint8_t bytes[kMpaMaxPrivate];
    const iovec room{bytes, std::min(reader_.wanted(), sizeof bytes)};
    const ssize_t n = stream_socket_.read({&room, 1});
    if (n < 0) return net::would_block(errno) ? Progress::pending : Progress::broken;
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

// The peer's first byte shows whether it uses TLS.
Handshake::Progress Handshake::detect_tls() {
  uint8_t first = 0;
  const ssize_t n = ::recv(stream_socket_.socket(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
  if (n < 0) return net::would_block(errno) || errno == EINTR ? Progress::pending : Progress::broken;
  if (n == 0) return Progress::broken;
  const bool speaks_tls = first == kTlsHandshakeRecord;
  if (tls_ && !speaks_tls) return Progress::unencrypted;
  if (!tls_ && speaks_tls) return Progress::encrypted;
  if (tls_) stream_socket_.encrypt(tls_->accept(stream_socket_.socket()));
  is_tls_detected_ = true;
  return Progress::done;
}

Handshake::Progress Handshake::advance_tls() {
  const net::ByteStream::Step step = stream_socket_.stream()->handshake();
  tls_wants_to_write_ = step == net::ByteStream::Step::wants_write;
  is_secure_ = step == net::ByteStream::Step::done;
  if (is_secure_) return Progress::done;
  if (step != net::ByteStream::Step::failed) return Progress::pending;
  return stream_socket_.stream()->error_code() == "unreachable" ? Progress::refused : Progress::broken;
}

}  // namespace verbena::iwarp
