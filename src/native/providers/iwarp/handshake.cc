#include "providers/iwarp/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace verbena::iwarp {
namespace {

constexpr uint8_t kTlsHandshakeRecord = 22;

}  // namespace

Handshake::Handshake(Call call, const SetUpFrame& request, net::TlsContext* tls, StreamTransport* carrier,
                     uint64_t deadline_ns)
    : call_(std::move(call)),
      tls_(tls),
      carrier_(carrier),
      initiator_(true),
      connecting_(true),
      is_secure_(!tls && !carrier),
      deadline_ns_(deadline_ns),
      request_(request),
      out_(encode(request)),
      reader_(true) {
  std::reverse(call_.to.begin(), call_.to.end());
}

Handshake::Handshake(net::StreamSocket wire, net::TlsContext* tls, uint64_t deadline_ns)
    : tls_(tls),
      carrier_(nullptr),
      wire_(std::move(wire)),
      initiator_(false),
      connecting_(false),
      is_met_(!wire_.has_socket()),
      is_secure_(!tls),
      deadline_ns_(deadline_ns),
      reader_(false) {}

bool Handshake::dial_next() {
  connecting_ = true;
  while (!call_.to.empty()) {
    const net::SocketAddress next = call_.to.back();
    call_.to.pop_back();
    wire_ = carrier_ ? net::StreamSocket(carrier_->dial(next, call_.from_place, call_.host))
                     : net::StreamSocket(net::begin_dial(next, call_.from, call_.dead_peer_timeout_ms));
    if (wire_) return true;
  }
  return false;
}

bool Handshake::wants_to_write() const {
  if (connecting_) return true;
  if (!is_secure_) return tls_wants_to_write_;
  return initiator_ && (sent_ < out_.size() || wire_.has_unsent());
}

std::pair<std::string, std::string> Handshake::tls_error() const {
  const net::ByteStream* session = wire_.stream();
  return session ? std::pair(session->error_code(), session->error_detail())
                 : std::pair<std::string, std::string>();
}

Handshake::Progress Handshake::advance() {
  if (connecting_ && carrier_) {
    connecting_ = false;
  } else if (connecting_) {
    net::SocketAddress peer;
    peer.length = sizeof peer.storage;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(wire_.socket(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Progress::refused;
    if (getpeername(wire_.socket(), peer.get(), &peer.length) != 0) return Progress::pending;
    connecting_ = false;
    if (tls_) wire_.encrypt(tls_->call(wire_.socket(), call_.host));
  }
  if (!initiator_ && !is_met_) {
    if (const Progress met = meet_caller(); met != Progress::done) return met;
  }
  if (!is_secure_) {
    if (const Progress secured = secure(); secured != Progress::done) return secured;
  }
  while (sent_ < out_.size()) {
    const ssize_t n = wire_.write(out_.data() + sent_, out_.size() - sent_);
    if (n < 0) return net::is_not_now(errno) ? Progress::pending : Progress::broken;
    sent_ += static_cast<size_t>(n);
  }
  if (!wire_.flush()) return net::is_not_now(errno) ? Progress::pending : Progress::broken;
  for (;;) {
    uint8_t bytes[kMpaMaxPrivate];
    const iovec room{bytes, std::min(reader_.wanted(), sizeof bytes)};
    const ssize_t n = wire_.read({&room, 1});
    if (n < 0) return net::is_not_now(errno) ? Progress::pending : Progress::broken;
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

// Its first byte tells whether it speaks TLS.
Handshake::Progress Handshake::meet_caller() {
  uint8_t first = 0;
  const ssize_t n = ::recv(wire_.socket(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
  if (n < 0) return net::is_not_now(errno) || errno == EINTR ? Progress::pending : Progress::broken;
  if (n == 0) return Progress::broken;
  const bool speaks_tls = first == kTlsHandshakeRecord;
  if (tls_ && !speaks_tls) return Progress::unencrypted;
  if (!tls_ && speaks_tls) return Progress::encrypted;
  if (tls_) wire_.encrypt(tls_->answer(wire_.socket()));
  is_met_ = true;
  return Progress::done;
}

Handshake::Progress Handshake::secure() {
  const net::ByteStream::Step step = wire_.stream()->shake_hands();
  tls_wants_to_write_ = step == net::ByteStream::Step::wants_write;
  is_secure_ = step == net::ByteStream::Step::done;
  if (is_secure_) return Progress::done;
  if (step != net::ByteStream::Step::failed) return Progress::pending;
  return wire_.stream()->error_code() == "unreachable" ? Progress::refused : Progress::broken;
}

}  // namespace verbena::iwarp
