// One process's presence on the iWARP wire: an address, a listener for peers that know our queue pairs'
// numbers, and the progress thread that plays the NIC. Set-up in context.cc, the thread in progress.cc,
// connections under way in dialling.cc. Lock order: control_mutex_, then the QP list's mutex, then a queue
// pair's lock, then mail_mutex_.
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

namespace verbena::iwarp {

// What the device on an interface can do; its GID comes with a context.
DeviceAttributes iwarp_device_attributes(const net::Interface& interface);

class IwarpContext final : public soft::SoftContext {
 public:
  // `carrier`: what streams come from, if not from TCP.
  IwarpContext(DeviceAttributes about, const net::Interface& interface, const Options& options,
               std::shared_ptr<soft::RegionEntry> regions, std::shared_ptr<StreamTransport> carrier = {});
  ~IwarpContext() override { close(); }
  void start();  // begins to answer peers; once, when construction is over

  DeviceAttributes query() const override;
  std::shared_ptr<Memory> allocate(size_t bytes, bool huge_pages) override;
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override;
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override;
  Counts counts() const override { return carrier_ ? carrier_->counts() : Counts{}; }
  void close() override;

  std::shared_ptr<soft::SoftCompletionQueue> make_cq(uint32_t depth) override;
  std::shared_ptr<soft::SoftQueuePair> make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                               const QpOptions& options, uint32_t number) override;

  const Options& options() const { return options_; }
  PrivateTrailer trailer(uint32_t from_qp, uint32_t to_qp, uint8_t flags) const;
  net::SocketAddress nearby() const;  // our own address, at a port that is free
  StreamTransport* carrier() const { return carrier_.get(); }
  void wake() const { progress_.wake(); }

  // From queue pairs, under their locks.
  void seek(uint32_t number);  // the peer of a QP that went to RTR
  void report_lost(uint32_t number);
  void say_goodbye(net::StreamSocket wire, std::vector<std::byte> words, bool is_watched);
  void watch_qp(const net::StreamSocket& wire, uint32_t number, uint32_t events, bool is_watched) const;
  void unwatch(const net::StreamSocket& wire) const;

  void disconnect_qp(uint32_t number);
  void turn_down(Handshake& handshake, std::span<const uint8_t> private_data, uint8_t trailer_flags = 0);
  void add_connection(IwarpConnection& connection);
  void remove_connection(IwarpConnection& connection);
  void add_listener(IwarpListener& listener);
  void remove_listener(IwarpListener& listener);

 private:
  // What an epoll event is for: the upper byte; the rest is a number or a descriptor.
  enum class Tag : uint8_t { doorbell, listener, handshake, queue_pair, farewell, carrier };
  static constexpr size_t kMaxParked = 4;  // requests that wait for one queue pair

  void watch(int fd, Tag tag, uint64_t id, uint32_t events, int operation) const;
  void watch(const net::StreamSocket& wire, Tag tag, uint64_t id, uint32_t events, int operation) const;

  // progress.cc
  void run(const std::stop_token& stop);
  void handle(Tag tag, uint64_t id);
  bool run_carrier();
  void read_mail();
  int tick(uint64_t now);  // timers; returns how many milliseconds may pass until the next

  // dialling.cc, under control_mutex_
  void accept_peers(int listener);
  void accept_streams();
  void meet(net::StreamSocket wire, int listener);
  void add_handshake(std::unique_ptr<Handshake> handshake);
  void advance_handshake(uint64_t id);
  void finish_dial(Handshake& handshake);
  void fail_dial(Handshake& handshake, const std::string& code, const std::string& detail = {});
  void answer(uint64_t id);
  bool answer_seeker(Handshake& handshake);  // false: it has to wait
  bool may_park(const Handshake& handshake) const;
  void make_room_for_caller();
  // Who is turned away in crowds gets no polite word: each would hold a socket until it has taken it.
  bool has_room_for_farewell() const {
    return farewell_count_.load(std::memory_order_relaxed) < options_.max_handshakes;
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
  const std::shared_ptr<StreamTransport> carrier_;  // or empty
  UniqueFd node_socket_;                            // none with a carrier
  int node_place_ = -1;
  net::SocketAddress node_address_;

  std::mutex control_mutex_;
  std::map<uint64_t, std::unique_ptr<Handshake>> handshakes_;
  std::map<uint64_t, IwarpConnection*> connections_;
  std::map<int, IwarpListener*> listeners_;
  std::set<int> paused_listeners_;  // no descriptor was left for a peer
  uint64_t next_id_ = 1;

  std::mutex mail_mutex_;
  std::vector<uint32_t> seekers_, lost_;
  std::vector<Farewell> new_farewells_;
  bool is_closed_ = false;
  std::map<uint64_t, Farewell> farewells_;  // the progress thread's own
  uint64_t next_farewell_ = 1;
  std::atomic<size_t> farewell_count_{0};

  std::once_flag closed_;
};

}  // namespace verbena::iwarp
