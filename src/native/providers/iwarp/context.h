// The iWARP context of a process: an address, a listener for peers that know the numbers of our queue pairs,
// and the progress thread. Set-up in context.cc, the thread in progress.cc, handshakes in
// context_handshakes.cc. Lock order: control_mutex_, then the list of queue pairs, then a queue pair's lock,
// then posted_mutex_.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/tls.h"
#include "providers/iwarp/channel.h"
#include "providers/iwarp/completion_queue.h"
#include "providers/iwarp/connection.h"
#include "providers/iwarp/handshake.h"
#include "providers/iwarp/options.h"
#include "providers/iwarp/queue_pair.h"
#include "providers/soft/context.h"
#include "providers/soft/progress_thread.h"
#include "verbs/port_sharing.h"

namespace verbena::iwarp {

// The attributes of the device on an interface; an open context adds its GID.
DeviceAttributes iwarp_device_attributes(const net::Interface& interface);

class IwarpContext final : public soft::SoftContext, public PortSharing {
 public:
  // `transport`: the source of byte streams; empty for kernel TCP.
  IwarpContext(DeviceAttributes about, const net::Interface& interface, const Options& options,
               std::shared_ptr<soft::RegionEntry> regions, std::shared_ptr<StreamTransport> transport = {});
  ~IwarpContext() override { close(); }
  void start();  // begins to answer peers; called once, after construction

  DeviceAttributes query() const override;
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) override;
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override;
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override;
  std::shared_ptr<SocketListener> listen_to_sockets(int backlog) override;
  void close_own_port() override;
  Counts counts() const override { return transport_ ? transport_->counts() : Counts{}; }
  void close() override;

  std::shared_ptr<soft::SoftCompletionQueue> make_cq(uint32_t depth) override;
  std::shared_ptr<soft::SoftQueuePair> make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                               const QpOptions& options, uint32_t number) override;

  const Options& options() const { return options_; }
  PrivateTrailer trailer(uint32_t from_qp, uint32_t to_qp, uint8_t flags) const;
  net::SocketAddress nearby() const;  // our own address with port 0: any free port
  StreamTransport* transport() const { return transport_.get(); }
  void wake() const { progress_.wake(); }

  // For queue pairs, under their locks.
  void search_peer(uint32_t number);  // finds the peer of a queue pair that went to RTR
  void report_lost(uint32_t number);
  void close_gracefully(net::StreamSocket socket, std::vector<std::byte> output, bool is_watched);
  void watch_qp(const net::StreamSocket& socket, uint32_t number, uint32_t events, bool is_watched) const;
  void unwatch(const net::StreamSocket& socket) const;

  void disconnect_qp(uint32_t number);
  void reject(Handshake& handshake, std::span<const uint8_t> private_data, uint8_t trailer_flags = 0);
  void add_connection(IwarpConnection& connection);
  void remove_connection(IwarpConnection& connection);
  void add_listener(IwarpListener& listener);
  void remove_listener(IwarpListener& listener);
  int id_without_port();  // of a listener that has no socket
  void take_over(UniqueFd socket, int listener, uint32_t timeout_ms);

 private:
  // What an epoll event is for: the upper byte of its data. The rest is a number or a descriptor.
  enum class Tag : uint8_t { doorbell, listener, handshake, queue_pair, closing, transport };
  static constexpr size_t kMaxParked = 4;  // requests that wait for the same queue pair
  static constexpr int kNoPort = -1;       // smaller ids name listeners without a port

  void watch(int fd, Tag tag, uint64_t id, uint32_t events, int operation) const;
  void watch(const net::StreamSocket& socket, Tag tag, uint64_t id, uint32_t events, int operation) const;

  // progress.cc
  void run(const std::stop_token& stop);
  void handle(Tag tag, uint64_t id);
  bool run_transport();
  void take_posted_work();
  int tick(uint64_t now);  // runs timers; returns the milliseconds until the next call

  // context_handshakes.cc, under control_mutex_
  void accept_peers(int listener);
  void accept_streams();
  void accept_peer(net::StreamSocket socket, int listener, uint32_t timeout_ms);
  void add_handshake(std::unique_ptr<Handshake> handshake);
  void advance_handshake(uint64_t id);
  void finish_dial(Handshake& handshake);
  void fail_dial(Handshake& handshake, ErrorCode code, const std::string& detail = {});
  void answer_request(uint64_t id);
  bool answer_endpoint_request(Handshake& handshake);  // false: it has to wait
  bool may_park(const Handshake& handshake) const;
  void evict_silent_handshake();
  // A rejected connection holds its socket until the peer has read the reply. Above this limit it is closed
  // without one.
  bool may_close_gracefully() const {
    return closing_count_.load(std::memory_order_relaxed) < options_.max_handshakes;
  }
  void find_peer_of(uint32_t number);
  void check_handshakes(uint64_t now);
  bool is_wanted(const Handshake& handshake);

  const net::Interface interface_;
  const Options options_;
  const DeviceAttributes about_;
  const std::unique_ptr<net::TlsContext> tls_;  // or empty
  const std::shared_ptr<soft::RegionEntry> region_entries_;
  soft::ProgressThread progress_;
  const std::shared_ptr<StreamTransport> transport_;  // empty: kernel TCP
  UnsharedFd node_socket_;                            // empty with a StreamTransport, or without a port
  int node_endpoint_id_ = kNoPort;                    // guarded by control_mutex_ after start()
  net::SocketAddress node_address_;

  std::mutex control_mutex_;
  std::map<uint64_t, std::unique_ptr<Handshake>> handshakes_;
  std::map<uint64_t, IwarpConnection*> connections_;
  std::map<int, IwarpListener*> listeners_;
  std::set<int> paused_listeners_;  // the process had no descriptor left for a peer
  int last_id_without_port_ = kNoPort;
  uint64_t next_id_ = 1;

  std::mutex posted_mutex_;
  std::vector<uint32_t> searching_qps_, lost_;
  std::vector<ClosingConnection> newly_closing_;
  bool is_closed_ = false;
  std::map<uint64_t, ClosingConnection> closing_;  // only the progress thread uses it
  uint64_t next_closing_id_ = 1;
  std::atomic<size_t> closing_count_{0};

  std::once_flag closed_;
};

}  // namespace verbena::iwarp
