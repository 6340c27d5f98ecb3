#include "providers/quic/connection.h"

#include <arpa/inet.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "providers/quic/engine.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::quic {
namespace {

// AES-128 first: a quarter less work per byte, and no known attack on either.
constexpr char kPriorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:-GROUP-ALL:"
    "+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%DISABLE_TLS13_COMPAT_MODE";
constexpr size_t kFirstSendLimit = 1 << 20;
constexpr uint64_t kNsPerMs = 1'000'000;

ngtcp2_addr to_library(const SocketAddress& address) {
  return {const_cast<ngtcp2_sockaddr*>(address.get()), address.length};
}

bool is_address(const std::string& host) {
  in6_addr ignored;
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

ngtcp2_cid random_id() {
  ngtcp2_cid id{};
  id.datalen = kIdBytes;
  library().gnutls_rnd(GNUTLS_RND_NONCE, id.data, id.datalen);
  return id;
}

}  // namespace

uint32_t StreamState::readiness() const {
  const bool is_gone = is_broken || (connection && !connection->is_alive());
  uint32_t ready = 0;
  if (in.size() > 0 || is_ended || is_gone) ready |= EPOLLIN;
  if (is_ended || is_gone) ready |= EPOLLRDHUP;
  if (is_gone || (id >= 0 && has_room())) ready |= EPOLLOUT;
  return ready;
}

// At least a quarter of the limit: small pieces are expensive.
bool StreamState::has_room() const {
  return out.size() <= (connection ? connection->send_limit() : kFirstSendLimit) / 4 * 3;
}

Connection::Connection(Engine& engine, std::shared_ptr<Endpoint> endpoint, const Endpoint::Route& route,
                       std::string host)
    : engine_(engine),
      endpoint_(std::move(endpoint)),
      role_(Role::client),
      host_(std::move(host)),
      route_(route),
      certificates_(engine.credentials().current()),
      send_limit_(kFirstSendLimit),
      batch_(engine.scratch()) {
  set_up(route, nullptr);
}

Connection::Connection(Engine& engine, std::shared_ptr<Endpoint> endpoint, const Endpoint::Route& route,
                       const InitialPacket& initial)
    : engine_(engine),
      endpoint_(std::move(endpoint)),
      role_(Role::server),
      route_(route),
      certificates_(engine.credentials().current()),
      send_limit_(kFirstSendLimit),
      batch_(engine.scratch()) {
  set_up(route, &initial);
}

Connection::~Connection() {
  if (conn_) library().ngtcp2_conn_del(conn_);
  if (session_) library().gnutls_deinit(session_);
}

void Connection::set_up(const Endpoint::Route& route, const InitialPacket* initial) {
  const Library& lib = library();
  const Options& options = engine_.options();
  const uint64_t now = now_ns();
  datagram_bytes_ = options.datagram_bytes ? options.datagram_bytes : max_datagram_bytes(route.remote);
  const bool is_large = datagram_bytes_ > NGTCP2_MAX_UDP_PAYLOAD_SIZE && datagram_bytes_ > 1452;

  ngtcp2_settings settings;
  lib.ngtcp2_settings_default_versioned(NGTCP2_SETTINGS_VERSION, &settings);
  settings.initial_ts = now;
  settings.cc_algo = NGTCP2_CC_ALGO_CUBIC;
  settings.max_tx_udp_payload_size = datagram_bytes_;
  settings.no_pmtud = is_large;
  settings.no_tx_udp_payload_size_shaping = is_large;
  settings.handshake_timeout = uint64_t{options.stream.handshake_timeout_ms} * kNsPerMs;
  settings.max_stream_window = engine_.stream_window(*endpoint_);
  settings.max_window = settings.max_stream_window * 2;
  if (initial) {
    settings.token = {const_cast<uint8_t*>(initial->token.data()), initial->token.size()};
  }

  ngtcp2_transport_params params;
  lib.ngtcp2_transport_params_default_versioned(NGTCP2_TRANSPORT_PARAMS_VERSION, &params);
  const uint64_t first_window = std::min<uint64_t>(settings.max_stream_window, 512 * 1024);
  params.initial_max_stream_data_bidi_local = first_window;
  params.initial_max_stream_data_bidi_remote = first_window;
  params.initial_max_data = first_window * 2;
  params.initial_max_streams_bidi = initial ? options.max_streams : 0;
  params.initial_max_streams_uni = 0;
  params.max_idle_timeout = uint64_t{options.stream.dead_peer_timeout_ms} * kNsPerMs;
  params.active_connection_id_limit = 7;

  const ngtcp2_path path{to_library(route.local), to_library(route.remote), nullptr};
  const ngtcp2_callbacks all = callbacks(role_);
  const ngtcp2_cid own = random_id();
  int result;
  if (initial) {
    params.original_dcid = initial->original_id;
    if (initial->was_retried) {
      params.retry_scid = initial->chosen_id;
      params.retry_scid_present = 1;
    }
    lib.gnutls_rnd(GNUTLS_RND_RANDOM, params.stateless_reset_token, sizeof params.stateless_reset_token);
    params.stateless_reset_token_present = 1;
    result = lib.ngtcp2_conn_server_new_versioned(
        &conn_, &initial->client_id, &own, &path, initial->version, NGTCP2_CALLBACKS_VERSION, &all,
        NGTCP2_SETTINGS_VERSION, &settings, NGTCP2_TRANSPORT_PARAMS_VERSION, &params, nullptr, this);
  } else {
    const ngtcp2_cid theirs = random_id();
    result = lib.ngtcp2_conn_client_new_versioned(
        &conn_, &theirs, &own, &path, NGTCP2_PROTO_VER_V1, NGTCP2_CALLBACKS_VERSION, &all,
        NGTCP2_SETTINGS_VERSION, &settings, NGTCP2_TRANSPORT_PARAMS_VERSION, &params, nullptr, this);
  }
  if (result != 0) throw Error("fd_limit", "connect", lib.ngtcp2_strerror(result));
  start_tls();
  engine_.add_id(*this, own);
  if (initial) engine_.add_id(*this, initial->chosen_id);
  lib.ngtcp2_conn_set_keep_alive_timeout(conn_, params.max_idle_timeout / 30);
}

void Connection::start_tls() {
  const Library& lib = library();
  const bool is_client = role_ == Role::client;
  const auto check = [&](int result) {
    if (result < 0) throw Error("tls_handshake", "connect", lib.gnutls_strerror(result));
  };
  // No tickets: sessions are not resumed, so there is no data before the end of the handshake (0-RTT).
  check(lib.gnutls_init(&session_, (is_client ? GNUTLS_CLIENT : GNUTLS_SERVER) | GNUTLS_NO_TICKETS |
                                       GNUTLS_NO_AUTO_SEND_TICKET));
  check(lib.gnutls_priority_set_direct(session_, kPriorities, nullptr));
  const int configured = is_client ? lib.ngtcp2_crypto_gnutls_configure_client_session(session_)
                                   : lib.ngtcp2_crypto_gnutls_configure_server_session(session_);
  if (configured != 0) throw Error("tls_handshake", "connect", "the TLS session cannot be used for QUIC");
  reference_.user_data = this;
  reference_.get_conn = [](ngtcp2_crypto_conn_ref* reference) {
    return static_cast<Connection*>(reference->user_data)->conn_;
  };
  lib.gnutls_session_set_ptr(session_, &reference_);
  check(lib.gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, certificates_->get()));
  gnutls_datum_t protocol{reinterpret_cast<unsigned char*>(const_cast<char*>(kProtocol)),
                          sizeof kProtocol - 1};
  check(lib.gnutls_alpn_set_protocols(session_, &protocol, 1, GNUTLS_ALPN_MANDATORY));
  lib.gnutls_session_set_verify_function(session_, [](gnutls_session_t session) {
    auto* reference = static_cast<ngtcp2_crypto_conn_ref*>(library().gnutls_session_get_ptr(session));
    return static_cast<Connection*>(reference->user_data)->verify();
  });
  if (is_client && !is_address(host_)) {
    lib.gnutls_server_name_set(session_, GNUTLS_NAME_DNS, host_.data(), host_.size());
  } else if (!is_client) {
    lib.gnutls_certificate_server_set_request(session_, engine_.credentials().requires_peer_certificate()
                                                            ? GNUTLS_CERT_REQUIRE
                                                            : GNUTLS_CERT_REQUEST);
  }
  lib.ngtcp2_conn_set_tls_native_handle(conn_, session_);
}

int Connection::verify() {
  const bool is_required = role_ == Role::client || engine_.credentials().requires_peer_certificate();
  certificate_error_ = verify_peer(session_, host_, is_required);
  return certificate_error_ ? GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR : 0;
}

std::string Connection::cipher() const {
  const char* name = library().gnutls_cipher_get_name(library().gnutls_cipher_get(session_));
  return std::string("QUIC, TLS 1.3, ") + (name ? name : "?");
}

std::shared_ptr<StreamState> Connection::open_stream() {
  auto stream = std::make_shared<StreamState>(engine_.pool());
  stream->connection = shared_from_this();
  unopened_.push_back(stream);
  return stream;
}

// Streams that were requested before the handshake was complete, or above the peer's limit.
void Connection::open_waiting() {
  while (is_established_ && conn_ && !unopened_.empty()) {
    StreamState& stream = *unopened_.front();
    if (library().ngtcp2_conn_open_bidi_stream(conn_, &stream.id, &stream) != 0) return;
    streams_[stream.id] = unopened_.front();
    unopened_.pop_front();
    engine_.notify(stream);
  }
}

void Connection::release(StreamState& stream) {
  stream.is_held = false;
  stream.wanted = 0;
  const auto is_it = [&](const std::shared_ptr<StreamState>& other) { return other.get() == &stream; };
  std::erase_if(unopened_, is_it);
  if (conn_ && stream.id >= 0 && stream.is_open) {
    const Library& lib = library();
    if (stream.in.size() > 0) {
      lib.ngtcp2_conn_extend_max_offset(conn_, stream.in.size());
      stream.in.clear();
    }
    // A direction that was ended properly is delivered; everything else is cut off.
    if (stream.wants_end) {
      if (!stream.is_ended) lib.ngtcp2_conn_shutdown_stream_read(conn_, stream.id, 0);
    } else {
      lib.ngtcp2_conn_shutdown_stream(conn_, stream.id, 0);
      std::erase_if(sendable_, is_it);
    }
    engine_.touch(*this);
  }
  if (is_idle()) idle_since_ns = now_ns();
}

void Connection::consumed(StreamState& stream, size_t bytes) {
  if (!conn_) return;
  if (stream.is_open && !stream.is_ended) {
    library().ngtcp2_conn_extend_max_stream_offset(conn_, stream.id, bytes);
  }
  library().ngtcp2_conn_extend_max_offset(conn_, bytes);
  // ngtcp2 announces a larger window only when it is worth a packet, so let it write from time to time.
  constexpr uint64_t kUpdateBytes = 64 * 1024;
  granted_ += bytes;
  if (granted_ < kUpdateBytes) return;
  granted_ = 0;
  engine_.touch(*this);
}

void Connection::has_output(StreamState& stream) {
  if (stream.is_sendable || !stream.is_open || stream.id < 0 || !stream.has_output()) return;
  const auto found = streams_.find(stream.id);
  if (found == streams_.end()) return;
  stream.is_sendable = true;
  sendable_.push_back(found->second);
}

bool Connection::is_polled() const {
  if (!is_established_ || !unopened_.empty() || streams_.empty()) return false;
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.second->is_held && entry.second->wanted == 0; });
}

void Connection::fail(EndReason reason) {
  if (!conn_) return;
  end_reason_ = std::move(reason);
  if (end_reason_.code.empty()) end_reason_.code = "peer_died";
  library().ngtcp2_conn_del(conn_);
  conn_ = nullptr;
  engine_.forget(*this);
  auto streams = std::move(streams_);
  streams_.clear();
  sendable_.clear();
  for (auto& [id, stream] : streams) {
    stream->is_open = false;
    stream->is_broken = true;
    engine_.notify(*stream);
  }
  for (auto& stream : std::exchange(unopened_, {})) {
    stream->is_broken = true;
    engine_.notify(*stream);
  }
}

}  // namespace verbena::quic
