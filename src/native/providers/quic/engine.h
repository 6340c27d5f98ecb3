// Engine: QUIC for one context. Owns sockets, connections by their ids, timers and admission, and gives the
// iWARP protocol byte streams (net/byte_stream.h). One mutex guards all of it, taken after a queue pair's
// lock; nothing here calls a queue pair. Set-up in engine.cc, datagrams in engine_datapath.cc.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "providers/iwarp/stream_transport.h"
#include "providers/quic/connection.h"
#include "providers/quic/options.h"

namespace verbena::quic {

// Counts since the context was opened.
struct Counters {
  uint64_t handshakes = 0;            // complete ones, as client or server
  uint64_t migrations = 0;            // peers that changed their address
  uint64_t garbage = 0;               // datagrams that are not QUIC or belong to no connection
  uint64_t early_data = 0;            // refused: it can be replayed
  uint64_t version_negotiations = 0;  // clients with unsupported versions
  uint64_t retries = 0;               // clients that had to prove their address
  uint64_t rejected_handshakes = 0;   // clients above the limit
  uint64_t refused_certificates = 0;
  uint64_t violations = 0;  // connections that ended by a protocol error of the peer
};

class Engine final : public iwarp::StreamTransport, public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(const Options& options);
  ~Engine() override;

  // iwarp::StreamTransport
  void start(int epoll, uint64_t tag, void (*wake)(void*), void* wake_argument) override;
  void close() override;
  int listen(const std::vector<SocketAddress>& addresses, const std::string& text) override;
  void stop_listening(int endpoint_id) override;
  SocketAddress address_of(int endpoint_id) const override;
  std::unique_ptr<net::ByteStream> dial(const SocketAddress& to, int from_endpoint_id,
                                        const std::string& host) override;
  void receive(int socket) override;
  bool has_incoming() const override { return has_incoming_.load(std::memory_order_relaxed); }
  std::optional<IncomingStream> next_incoming() override;
  size_t ready_count() const override;
  std::optional<uint64_t> take_ready() override;
  void ready_handled(uint64_t key) override;
  uint64_t deadline_ns() const override;
  void check_timers(uint64_t now) override;
  Counts counts() const override;

  // For streams, which take the mutex themselves.
  std::mutex& mutex() { return mutex_; }
  void receive_from(Endpoint& endpoint);  // receives some batches and sends what they cause
  void watch(StreamState& stream, uint64_t key, uint32_t events);
  void finish();  // sends what connections have to send now
  bool is_progress_thread() const { return std::this_thread::get_id() == progress_thread_; }

  // For connections.
  const Options& options() const { return options_; }
  Credentials& credentials() { return credentials_; }
  BlockPool& pool() { return pool_; }
  std::byte* scratch() const { return scratch_.get(); }
  Counters& counters() { return counters_; }
  uint64_t stream_window(const Endpoint& endpoint) const;
  void established(Connection& connection);
  void add_incoming(std::shared_ptr<StreamState> stream);
  void notify(StreamState& stream);
  void touch(Connection& connection);
  void forget(Connection& connection);
  void add_id(Connection& connection, const ngtcp2_cid& id);
  void remove_id(const ngtcp2_cid& id);
  void keep_close_packet(Connection& connection, std::span<const std::byte> packet, uint64_t until);

 private:
  // The close packet of a connection that has ended, repeated for a peer that has not received it.
  struct ClosedConnection {
    std::vector<std::byte> packet;
    std::vector<std::string> ids;
    uint64_t until = 0, datagrams = 0;
  };

  std::shared_ptr<Endpoint> add_endpoint(const std::vector<SocketAddress>& addresses,
                                         const std::string& text);
  Endpoint* find(int socket) const;
  void watch_socket(Endpoint& endpoint);
  void take(Endpoint& endpoint, std::span<const std::byte> datagram, const Endpoint::Route& route,
            uint64_t now);
  void handle_initial(const std::shared_ptr<Endpoint>& endpoint, std::span<const std::byte> datagram,
                      const Endpoint::Route& route, uint64_t now);
  bool check_token(const ngtcp2_pkt_hd& head, const Endpoint::Route& route,
                   Connection::InitialPacket& initial, uint64_t now);
  void send_retry(Endpoint& endpoint, const ngtcp2_pkt_hd& head, const Endpoint::Route& route, uint64_t now);
  void negotiate_version(Endpoint& endpoint, const ngtcp2_version_cid& called, size_t size,
                         const Endpoint::Route& route);
  void set_timer(Connection& connection);
  void close_idle(uint64_t now);

  const Options options_;
  mutable std::mutex mutex_;
  Credentials credentials_;
  BlockPool pool_;
  const std::unique_ptr<std::byte[]> scratch_;
  std::array<uint8_t, 32> token_secret_;
  Counters counters_;

  int epoll_ = -1;
  uint64_t tag_ = 0;
  void (*wake_)(void*) = nullptr;
  void* wake_argument_ = nullptr;
  std::atomic<std::thread::id> progress_thread_{};

  std::map<int, std::shared_ptr<Endpoint>> endpoints_;
  std::map<int, std::shared_ptr<Endpoint>>
      client_endpoints_;  // by address family: local endpoints for dialling
  std::set<std::shared_ptr<Connection>> connections_;
  std::unordered_map<std::string, Connection*> ids_;
  std::unordered_map<std::string, std::shared_ptr<ClosedConnection>> closed_by_id_;
  std::deque<std::shared_ptr<ClosedConnection>> closed_;
  size_t half_open_ = 0;  // clients whose handshake is incomplete

  std::deque<std::shared_ptr<StreamState>> incoming_;
  std::atomic<bool> has_incoming_{false};
  std::deque<std::shared_ptr<StreamState>> ready_;
  std::shared_ptr<StreamState> in_service_;
  std::vector<std::shared_ptr<Connection>> touched_;
  std::set<std::pair<uint64_t, Connection*>> timers_;
  std::atomic<uint64_t> deadline_ns_{UINT64_MAX};
  uint64_t idle_check_ns_ = 0;
  bool is_closed_ = false;
};

}  // namespace verbena::quic
