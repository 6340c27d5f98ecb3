// One QUIC connection: the state machine of ngtcp2, its TLS session, and the streams on it. Everything runs
// under the engine's mutex; nothing here calls a queue pair. Set-up in connection.cc, ngtcp2's callbacks in
// callbacks.cc, packets in connection_datapath.cc.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "providers/quic/byte_queue.h"
#include "providers/quic/credentials.h"
#include "providers/quic/endpoint.h"
#include "providers/quic/library.h"

namespace verbena::quic {

class Connection;
class Engine;

constexpr size_t kIdBytes = 12;  // of the connection IDs that we choose
// The ALPN protocol. The messages are those of the iWARP wire, with one stream for each queue pair.
constexpr char kProtocol[] = "verbena-quic/1";

// One end of a stream. Shared by its connection and the QuicStream that holds it.
struct StreamState : std::enable_shared_from_this<StreamState> {
  explicit StreamState(BlockPool& pool) : in(pool), out(pool) {}

  std::shared_ptr<Connection> connection;  // until the QuicStream is destroyed
  int64_t id = -1;                         // not open yet
  ByteQueue in, out;
  size_t sent = 0;         // bytes of `out` that ngtcp2 has taken and the peer has not acknowledged
  bool is_open = true;     // ngtcp2 knows the stream, or will
  bool is_ended = false;   // the peer has ended its direction
  bool is_broken = false;  // reset, or the connection is gone
  bool wants_end = false, end_was_sent = false;
  bool is_sendable = false;  // is in the connection's queue
  bool is_held = true;       // by a QuicStream

  // The events that its holder waits for.
  uint64_t key = 0;
  uint32_t wanted = 0;
  bool is_queued = false;

  uint32_t readiness() const;  // as epoll events
  bool has_room() const;
  bool has_output() const { return sent < out.size() || (wants_end && !end_was_sent); }
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class Role : uint8_t { client, server };
  // What a server learns from the client's first packet.
  struct InitialPacket {
    ngtcp2_cid client_id{}, chosen_id{}, original_id{};
    uint32_t version = NGTCP2_PROTO_VER_V1;
    bool was_retried = false;
    std::span<const uint8_t> token;
  };

  Connection(Engine& engine, std::shared_ptr<Endpoint> endpoint, const Endpoint::Route& route,
             std::string host);  // a client
  Connection(Engine& engine, std::shared_ptr<Endpoint> endpoint, const Endpoint::Route& route,
             const InitialPacket& initial);
  ~Connection();

  Role role() const { return role_; }
  const std::string& host() const { return host_; }
  const std::shared_ptr<Endpoint>& endpoint() const { return endpoint_; }
  SocketAddress peer() const { return route_.remote; }
  bool is_alive() const { return conn_ != nullptr; }
  bool is_idle() const { return streams_.empty() && unopened_.empty(); }
  // True when polling threads, not the progress thread, read for every stream.
  bool is_polled() const;
  const std::shared_ptr<const Certificates>& certificates() const { return certificates_; }
  std::string cipher() const;
  // Why the connection ended.
  const EndReason& end_reason() const { return end_reason_; }

  std::shared_ptr<StreamState> open_stream();
  void release(StreamState& stream);  // its QuicStream is destroyed
  void consumed(StreamState& stream, size_t bytes);
  void has_output(StreamState& stream);
  size_t send_limit() const { return send_limit_; }

  void read(std::span<const std::byte> datagram, const Endpoint::Route& route, uint64_t now);
  void write(uint64_t now);
  uint64_t expiry() const;
  void handle_expiry(uint64_t now);
  void close(uint64_t now);             // sends a close packet and ends the connection
  void fail(EndReason reason);          // ends the connection
  void peer_unreachable(uint64_t now);  // reported by an ICMP error

  uint64_t timer_ns = UINT64_MAX;  // owned by the engine
  uint64_t idle_since_ns = 0;
  bool is_counted_half_open = false, is_touched = false;
  std::vector<std::string> ids;

  // callbacks.cc
  static ngtcp2_callbacks callbacks(Role role);

 private:
  friend struct Callbacks;

  void set_up(const Endpoint::Route& route, const InitialPacket* initial);
  void start_tls();
  int verify();  // the peer's certificate; called by the TLS library
  void open_waiting();
  void settle(int error, uint64_t now);
  void send_close_packet(const ngtcp2_connection_close_error& why, uint64_t now);
  bool write_packet(StreamState* stream, uint64_t now);
  void add_packet(size_t size, const Endpoint::Route& route);
  void send_batch();
  void unblock();
  void update_limits();

  Engine& engine_;
  const std::shared_ptr<Endpoint> endpoint_;
  const Role role_;
  const std::string host_;
  Endpoint::Route route_;
  std::shared_ptr<const Certificates> certificates_;
  ngtcp2_conn* conn_ = nullptr;
  gnutls_session_t session_ = nullptr;
  ngtcp2_crypto_conn_ref reference_{};
  bool is_established_ = false;
  EndReason certificate_error_;  // of the peer's certificate
  EndReason end_reason_;
  std::map<int64_t, std::shared_ptr<StreamState>> streams_;
  std::deque<std::shared_ptr<StreamState>> unopened_, sendable_, blocked_;
  size_t datagram_bytes_ = 0, send_limit_;
  uint64_t unreachable_since_ns_ = 0, granted_ = 0;

  // Packets of one route that are sent by one system call.
  std::byte* const batch_;  // the engine's scratch buffer
  size_t used_ = 0, packets_ = 0, segment_ = 0;
  Endpoint::Route batch_route_;
};

}  // namespace verbena::quic
