// Packets and timers of one connection.
#include <algorithm>
#include <cstring>

#include "providers/quic/connection.h"
#include "providers/quic/engine.h"
#include "util/clock.h"

namespace verbena::quic {
namespace {

constexpr size_t kMaxSendLimit = 16 << 20;
// A peer that sends nothing for this long after an ICMP error counts as unreachable.
constexpr uint64_t kUnreachableNs = 200'000'000;

SocketAddress from_library(const ngtcp2_addr& address) {
  SocketAddress copy;
  std::memcpy(&copy.storage, address.addr, address.addrlen);
  copy.length = address.addrlen;
  return copy;
}

}  // namespace

void Connection::read(std::span<const std::byte> datagram, const Endpoint::Route& route, uint64_t now) {
  if (!conn_) return;
  // A client's own address may change while its socket stays the same; the peer detects that.
  const SocketAddress& local = role_ == Role::client ? route_.local : route.local;
  const ngtcp2_path path{{const_cast<ngtcp2_sockaddr*>(local.get()), local.length},
                         {const_cast<ngtcp2_sockaddr*>(route.remote.get()), route.remote.length},
                         nullptr};
  const ngtcp2_pkt_info info{};
  const auto self = shared_from_this();  // a failure removes the connection from the engine
  const int result = library().ngtcp2_conn_read_pkt_versioned(
      conn_, &path, NGTCP2_PKT_INFO_VERSION, &info, reinterpret_cast<const uint8_t*>(datagram.data()),
      datagram.size(), now);
  if (result != 0) return settle(result, now);
  unreachable_since_ns_ = 0;
  open_waiting();
  engine_.touch(*this);
}

// Ends the connection as the error of ngtcp2 requires.
void Connection::settle(int error, uint64_t now) {
  const Library& lib = library();
  ngtcp2_connection_close_error why;
  lib.ngtcp2_connection_close_error_default(&why);
  switch (error) {
    case NGTCP2_ERR_DRAINING: {
      lib.ngtcp2_conn_get_connection_close_error(conn_, &why);
      const bool is_alert = why.type == NGTCP2_CONNECTION_CLOSE_ERROR_CODE_TYPE_TRANSPORT &&
                            why.error_code >= NGTCP2_CRYPTO_ERROR &&
                            why.error_code < NGTCP2_CRYPTO_ERROR + 256;
      if (is_alert) return fail(reason_of_alert(static_cast<uint8_t>(why.error_code & 0xff)));
      if (!is_established_)
        return fail({"tls_handshake", "the peer closed the connection during the handshake"});
      return fail({"peer_died", "the peer closed the connection"});
    }
    case NGTCP2_ERR_DROP_CONN:
    case NGTCP2_ERR_RETRY:
      return fail({"tls_handshake", "the peer's first packet is invalid"});
    case NGTCP2_ERR_RECV_VERSION_NEGOTIATION:
      return fail({"version_mismatch", "the peer supports no QUIC version that this end supports"});
    case NGTCP2_ERR_IDLE_CLOSE:
      return fail({"peer_died", "the peer sent nothing until the idle timeout"});
    case NGTCP2_ERR_HANDSHAKE_TIMEOUT:
      return fail({"connect_timeout", ""});
    case NGTCP2_ERR_CRYPTO: {
      EndReason reason = certificate_error_;
      if (!reason) {
        reason.alert = lib.ngtcp2_conn_get_tls_alert(conn_);
        const char* name = lib.gnutls_alert_get_name(static_cast<gnutls_alert_description_t>(reason.alert));
        reason.code =
            reason.alert == GNUTLS_A_CERTIFICATE_REQUIRED ? ErrorCode("tls_untrusted") : "tls_handshake";
        reason.detail = name ? name : "the TLS handshake failed";
      }
      lib.ngtcp2_connection_close_error_set_transport_error_tls_alert(&why, reason.alert, nullptr, 0);
      send_close_packet(why, now);
      if (role_ == Role::server) ++engine_.counters().refused_certificates;
      return fail(reason);
    }
    default:
      lib.ngtcp2_connection_close_error_set_transport_error_liberr(&why, error, nullptr, 0);
      send_close_packet(why, now);
      ++engine_.counters().violations;
      return fail({"bad_message", lib.ngtcp2_strerror(error)});
  }
}

void Connection::close(uint64_t now) {
  if (!conn_) return;
  ngtcp2_connection_close_error why;
  library().ngtcp2_connection_close_error_default(&why);
  library().ngtcp2_connection_close_error_set_application_error(&why, 0, nullptr, 0);
  send_close_packet(why, now);
  fail({"peer_died", "closed"});
}

void Connection::send_close_packet(const ngtcp2_connection_close_error& why, uint64_t now) {
  uint8_t packet[1500];
  ngtcp2_path_storage storage;
  library().ngtcp2_path_storage_zero(&storage);
  ngtcp2_pkt_info info{};
  const ngtcp2_ssize size = library().ngtcp2_conn_write_connection_close_versioned(
      conn_, &storage.path, NGTCP2_PKT_INFO_VERSION, &info, packet, sizeof packet, &why, now);
  if (size <= 0) return;
  const std::span bytes(reinterpret_cast<const std::byte*>(packet), static_cast<size_t>(size));
  endpoint_->send({from_library(storage.path.local), from_library(storage.path.remote)}, bytes, bytes.size());
  engine_.keep_close_packet(*this, bytes, now + 3 * library().ngtcp2_conn_get_pto(conn_));
}

void Connection::write(uint64_t now) {
  if (!conn_) return;
  const auto self = shared_from_this();
  open_waiting();
  unblock();
  used_ = packets_ = 0;
  while (conn_ && !endpoint_->is_blocked()) {
    StreamState* stream = sendable_.empty() ? nullptr : sendable_.front().get();
    if (!write_packet(stream, now)) break;
  }
  if (!conn_) return;
  send_batch();
  if (!sendable_.empty()) update_limits();  // the path is the bottleneck: adapt the send limit to it
}

// False: nothing more can be sent now.
bool Connection::write_packet(StreamState* stream, uint64_t now) {
  const Library& lib = library();
  constexpr size_t kPieces = 4;
  iovec pieces[kPieces];
  ngtcp2_vec vectors[kPieces];
  size_t count = 0;
  uint32_t flags = NGTCP2_WRITE_STREAM_FLAG_NONE;
  if (stream) {
    count = stream->out.pieces(stream->sent, pieces);
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = {static_cast<uint8_t*>(pieces[i].iov_base), pieces[i].iov_len};
      offered += pieces[i].iov_len;
    }
    if (stream->wants_end && stream->sent + offered == stream->out.size()) {
      flags |= NGTCP2_WRITE_STREAM_FLAG_FIN;
    }
  }
  if (used_ + datagram_bytes_ > Endpoint::kMaxBatchBytes) send_batch();
  ngtcp2_path_storage storage;
  lib.ngtcp2_path_storage_zero(&storage);
  ngtcp2_pkt_info info{};
  ngtcp2_ssize taken = -1;
  const ngtcp2_ssize size = lib.ngtcp2_conn_writev_stream_versioned(
      conn_, &storage.path, NGTCP2_PKT_INFO_VERSION, &info, reinterpret_cast<uint8_t*>(batch_ + used_),
      datagram_bytes_, &taken, flags, stream ? stream->id : -1, vectors, count, now);
  if (size < 0) {
    const bool is_streams_own = size == NGTCP2_ERR_STREAM_DATA_BLOCKED || size == NGTCP2_ERR_STREAM_SHUT_WR ||
                                size == NGTCP2_ERR_STREAM_NOT_FOUND;
    if (!is_streams_own || !stream) {
      settle(static_cast<int>(size), now);
      return false;
    }
    // When a packet from the peer extends the flow control limit, all blocked streams try again.
    stream->is_sendable = false;
    if (size == NGTCP2_ERR_STREAM_DATA_BLOCKED) blocked_.push_back(sendable_.front());
    sendable_.pop_front();
    return true;
  }
  if (size == 0) return false;
  if (stream && taken >= 0) {
    stream->sent += static_cast<size_t>(taken);
    if ((flags & NGTCP2_WRITE_STREAM_FLAG_FIN) && stream->sent == stream->out.size())
      stream->end_was_sent = true;
    // Round robin over the streams.
    auto self = sendable_.front();
    sendable_.pop_front();
    if (stream->has_output()) {
      sendable_.push_back(std::move(self));
    } else {
      stream->is_sendable = false;
    }
  }
  add_packet(static_cast<size_t>(size),
             {from_library(storage.path.local), from_library(storage.path.remote)});
  return true;
}

// The packet lies at the end of the batch. All packets of one system call have the same size, except the
// last.
void Connection::add_packet(size_t size, const Endpoint::Route& route) {
  const bool is_first = used_ == 0;
  const bool fits = is_first || (size <= segment_ && packets_ < Endpoint::kMaxSegments &&
                                 same_address(route.remote, batch_route_.remote) &&
                                 same_address(route.local, batch_route_.local));
  if (!fits) {
    const size_t at = used_;
    send_batch();
    std::memmove(batch_, batch_ + at, size);
  }
  if (used_ == 0) {
    segment_ = size;
    batch_route_ = route;
  }
  used_ += size;
  ++packets_;
  if (size < segment_) send_batch();
}

void Connection::send_batch() {
  if (used_ == 0) return;
  endpoint_->send(batch_route_, {batch_, used_}, segment_);
  used_ = packets_ = 0;
}

void Connection::unblock() {
  for (auto& stream : std::exchange(blocked_, {})) has_output(*stream);
}

uint64_t Connection::expiry() const {
  if (!conn_) return UINT64_MAX;
  const uint64_t expiry = library().ngtcp2_conn_get_expiry(conn_);
  return unreachable_since_ns_ ? std::min(expiry, unreachable_since_ns_ + kUnreachableNs) : expiry;
}

void Connection::handle_expiry(uint64_t now) {
  if (!conn_) return;
  if (unreachable_since_ns_ && now >= unreachable_since_ns_ + kUnreachableNs) {
    return fail({"peer_died", "the peer's host reports that its port is closed"});
  }
  const auto self = shared_from_this();
  if (library().ngtcp2_conn_get_expiry(conn_) > now) return;
  const int result = library().ngtcp2_conn_handle_expiry(conn_, now);
  if (result != 0) return settle(result, now);
  write(now);
}

// ICMP errors can be forged. An established connection fails only if the peer also stays silent for a while.
// During the handshake nothing can be lost yet, so the connection fails at once.
void Connection::peer_unreachable(uint64_t now) {
  if (!conn_) return;
  if (!is_established_) return fail({"unreachable", "no process listens at that address"});
  if (unreachable_since_ns_ == 0) unreachable_since_ns_ = now;
  engine_.touch(*this);
}

void Connection::update_limits() {
  ngtcp2_conn_stat stat;
  library().ngtcp2_conn_get_conn_stat_versioned(conn_, NGTCP2_CONN_STAT_VERSION, &stat);
  send_limit_ = std::clamp<size_t>(static_cast<size_t>(stat.cwnd) * 2, 1 << 20, kMaxSendLimit);
}

}  // namespace verbena::quic
