// QUIC for one context: sockets, connections found by their IDs, timers, and who may come in. What it gives
// the iWARP protocol is byte streams (iwarp/byte_stream.h). One mutex over all of it, taken below a queue
// pair's lock; nothing here calls back into one. Set-up in engine.cc, datagrams in engine_datapath.cc.
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

// What has happened to a context so far.
struct Counters {
  uint64_t handshakes = 0;            // complete, either way
  uint64_t migrations = 0;            // peers that changed their address
  uint64_t garbage = 0;               // datagrams that are no QUIC, or of no connection
  uint64_t early_data = 0;            // refused: it can be replayed
  uint64_t version_negotiations = 0;  // callers with versions that we do not speak
  uint64_t retries = 0;               // callers that had to prove their address
  uint64_t turned_away = 0;           // callers beyond the limit
  uint64_t refused_certificates = 0;
  uint64_t violations = 0;  // connections ended for what the peer sent
};

class Engine final : public iwarp::StreamTransport, public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(const Options& options);
  ~Engine() override;

  // iwarp::StreamTransport
  void start(int epoll, uint64_t tag, void (*wake)(void*), void* waker) override;
  void close() override;
  int listen(const std::vector<SocketAddress>& addresses, const std::string& text) override;
  void stop_listening(int place) override;
  SocketAddress address_of(int place) const override;
  std::unique_ptr<net::ByteStream> dial(const SocketAddress& to, int from_place,
                                        const std::string& host) override;
  void receive(int socket) override;
  bool has_arrival() const override { return has_arrival_.load(std::memory_order_relaxed); }
  std::optional<Arrival> next_arrival() override;
  size_t ready_count() const override;
  std::optional<uint64_t> next_ready() override;
  void looked_after(uint64_t key) override;
  uint64_t deadline_ns() const override;
  void check_timers(uint64_t now) override;
  Counts counts() const override;

  // For streams, which take the mutex themselves.
  std::mutex& mutex() { return mutex_; }
  void receive_from(Endpoint& endpoint);  // one batch, and what it calls for
  void watch(StreamState& stream, uint64_t key, uint32_t events);
  void finish();  // writes what connections have to say by now
  bool is_progress_thread() const { return std::this_thread::get_id() == progress_thread_; }

  // For connections.
  const Options& options() const { return options_; }
  Credentials& credentials() { return credentials_; }
  BlockPool& pool() { return pool_; }
  std::byte* scratch() const { return scratch_.get(); }
  Counters& counters() { return counters_; }
  uint64_t stream_window(const Endpoint& endpoint) const;
  void established(Connection& connection);
  void arrived(std::shared_ptr<StreamState> stream);
  void notify(StreamState& stream);
  void touch(Connection& connection);
  void forget(Connection& connection);
  void add_id(Connection& connection, const ngtcp2_cid& id);
  void remove_id(const ngtcp2_cid& id);
  void remember_last_words(Connection& connection, std::span<const std::byte> words, uint64_t until);

 private:
  // What a connection that is over says to a peer that has not heard of it.
  struct Departed {
    std::vector<std::byte> words;
    std::vector<std::string> ids;
    uint64_t until = 0, asked = 0;
  };

  std::shared_ptr<Endpoint> add_endpoint(const std::vector<SocketAddress>& addresses,
                                         const std::string& text);
  Endpoint* find(int socket) const;
  void watch_socket(Endpoint& endpoint);
  void take(Endpoint& endpoint, std::span<const std::byte> datagram, const Endpoint::Route& route,
            uint64_t now);
  void meet_stranger(const std::shared_ptr<Endpoint>& endpoint, std::span<const std::byte> datagram,
                     const Endpoint::Route& route, uint64_t now);
  bool check_token(const ngtcp2_pkt_hd& head, const Endpoint::Route& route,
                   Connection::Introduction& introduction, uint64_t now);
  void ask_to_retry(Endpoint& endpoint, const ngtcp2_pkt_hd& head, const Endpoint::Route& route,
                    uint64_t now);
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
  void* waker_ = nullptr;
  std::atomic<std::thread::id> progress_thread_{};

  std::map<int, std::shared_ptr<Endpoint>> endpoints_;
  std::map<int, std::shared_ptr<Endpoint>> callers_;  // by address family: where calls start from
  std::set<std::shared_ptr<Connection>> connections_;
  std::unordered_map<std::string, Connection*> ids_;
  std::unordered_map<std::string, std::shared_ptr<Departed>> departed_;
  std::deque<std::shared_ptr<Departed>> departures_;
  size_t half_open_ = 0;  // callers whose handshake is under way

  std::deque<std::shared_ptr<StreamState>> arrivals_;
  std::atomic<bool> has_arrival_{false};
  std::deque<std::shared_ptr<StreamState>> ready_;
  std::shared_ptr<StreamState> looking_at_;
  std::vector<std::shared_ptr<Connection>> touched_;
  std::set<std::pair<uint64_t, Connection*>> timers_;
  std::atomic<uint64_t> deadline_ns_{UINT64_MAX};
  uint64_t idle_check_ns_ = 0;
  bool is_closed_ = false;
};

}  // namespace verbena::quic
