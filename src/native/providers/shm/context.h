// The shm context of a process: its identity, shared memory, links to peers, and the progress thread. Set-up
// and control messages here, connections in connection.h. Lock order: control_mutex_ before a queue pair's
// locks; the mutex of the list of queue pairs before a queue pair's lock.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "providers/shm/completion_queue.h"
#include "providers/shm/connection.h"
#include "providers/shm/link.h"
#include "providers/shm/memory/arena.h"
#include "providers/shm/queue_pair.h"
#include "providers/shm/sharing.h"
#include "providers/soft/context.h"
#include "providers/soft/progress_thread.h"

namespace verbena::shm {

// The attributes of the one shm device; an open context adds its GID.
DeviceAttributes shm_device_attributes();

// The region table: only this process can write it.
struct SharedTable {
  SharedTable();
  UniqueFd fd;
  Mapping mapping;
};

class ShmContext final : public soft::SoftContext {
 public:
  static std::shared_ptr<ShmContext> open();  // a context whose progress thread runs
  explicit ShmContext(SharedTable table);
  ~ShmContext() override { close(); }

  DeviceAttributes query() const override;
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) override;
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override;
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override;
  void close() override;

  std::shared_ptr<soft::SoftCompletionQueue> make_cq(uint32_t depth) override;
  std::shared_ptr<soft::SoftQueuePair> make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                               const QpOptions& options, uint32_t number) override;
  soft::ArenaLocation locate(const std::byte* addr, size_t length, uint32_t access,
                             const MemoryGroup* group) const override;
  void share(uint32_t scope, uint32_t arena) override { sharing_.add(scope, arena); }
  void unshare(uint32_t scope, uint32_t arena) override { sharing_.remove(scope, arena); }
  void quiesce() override;
  // The program has connected this queue pair: the peer may use the memory of its domain.
  void grant_access(uint32_t qp_num, uint32_t pd, const std::shared_ptr<Link>& link);
  void revoke_access(uint32_t qp_num) { sharing_.disconnected(qp_num); }
  void track_access(PeerAccess access);  // the ring is closed while the peer accesses our memory

  const Gid& gid() const { return gid_; }
  void wake() const { progress_.wake(); }
  // Exchanges rings with the peer's QP; false when it does not exist or does not answer in time.
  bool attach(ShmQueuePair& qp, int ring_fd, const Gid& gid, uint32_t peer_qp);
  void disconnect_qp(uint32_t number);
  void add_connection(ShmConnection& connection);
  void remove_connection(ShmConnection& connection);
  void add_listener(ShmListener& listener);
  void remove_listener(ShmListener& listener);

 private:
  void run(const std::stop_token& stop);
  int tick();  // drives all queue pairs and timers; returns the milliseconds until the next call, or -1
  void close_silent_link();
  void accept_links(int listener);
  void read_link(const std::shared_ptr<Link>& link);
  bool handle(const std::shared_ptr<Link>& link, ControlMessage& message);
  bool handle_proved_attach(const std::shared_ptr<Link>& link, ControlMessage& message);
  void handle_attach(const std::shared_ptr<Link>& link, ControlMessage& message);
  void handle_attached(const std::shared_ptr<Link>& link, ControlMessage& message);
  void handle_connect(const std::shared_ptr<Link>& link, ControlMessage& message);
  void handle_claim(const std::shared_ptr<Link>& link, const ControlMessage& message);
  void handle_claimed(const std::shared_ptr<Link>& link, const ControlMessage& message);
  bool prove(const std::shared_ptr<Link>& link);
  void handle_for_connection(const std::shared_ptr<Link>& link, ControlMessage& message);
  void remove_link(const std::shared_ptr<Link>& link);
  std::shared_ptr<Link> add_link(UniqueFd socket, const std::string& dialled);
  std::shared_ptr<Link> link_to(const std::string& address);
  void watch(int fd);

  Gid gid_{};
  const uint64_t probe_token_;
  SharedTable table_;
  soft::ProgressThread progress_;
  UniqueFd spare_fd_;
  UnsharedFd node_socket_;
  std::shared_ptr<ArenaPool> pool_;
  Sharing sharing_;

  std::mutex control_mutex_;
  std::condition_variable control_changed_;
  std::map<int, std::shared_ptr<Link>> links_;                   // by socket
  std::map<std::string, std::weak_ptr<Link>> links_by_address_;  // by address
  std::map<uint64_t, ShmConnection*> connections_;
  std::map<int, ShmListener*> listeners_;
  // QPs that wait for an answer to `attach`.
  struct Attaching {
    const Link* link;
    bool refused;
  };
  std::map<uint32_t, Attaching> attaching_;

  std::mutex accesses_mutex_;
  std::vector<PeerAccess> accesses_;

  std::once_flag closed_;
};

}  // namespace verbena::shm
