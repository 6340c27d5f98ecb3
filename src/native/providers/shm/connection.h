// The connection manager of the shm wire: listeners, connect requests and connections, addressed by name.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "providers/shm/control.h"
#include "providers/shm/link.h"
#include "providers/soft/connection.h"
#include "util/fd.h"
#include "verbs/provider.h"

namespace verbena::shm {

class ShmContext;
class ShmQueuePair;

// The shm queue pair behind a contract pointer, moved to INIT if it was in RESET. Throws for any other queue
// pair and for parameters out of range.
std::shared_ptr<ShmQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp, const ConnectParams& params);

// Both ends of a connection may be in one context, so each has its own number: the initiator's is even, the
// acceptor's is the same with the lowest bit set. A message carries the number of the end that it is for.
class ShmConnection final : public soft::SoftConnection {
 public:
  ShmConnection(std::shared_ptr<ShmContext> context, std::shared_ptr<ShmQueuePair> qp, std::string peer,
                uint64_t connection_id, const ConnectParams& params);
  ~ShmConnection() override;

  void disconnect() override;

  uint64_t connection_id() const { return connection_id_; }
  uint64_t peer_connection_id() const { return connection_id_ ^ 1; }
  bool is_on(const Link& link) const { return link_.get() == &link; }
  void set_link(std::shared_ptr<Link> link) { link_ = std::move(link); }  // under the context's control mutex
  void fail_connect(ErrorCode code) { change(ConnectionState::failed, code); }
  // Moves the QP to RTS towards the peer's ring.
  void bring_up(const std::shared_ptr<Link>& link, int ring_fd, uint32_t peer_qp);

  // For the progress thread, under the context's control mutex.
  void on_accept(const std::shared_ptr<Link>& link, ControlMessage& message);
  void on_reject(ControlMessage& message);
  void on_established();
  void on_disconnect();
  void on_link_failed();
  void check_deadline(uint64_t now);

 private:
  const std::shared_ptr<ShmContext> context_;
  ShmQueuePair& qp_;
  const uint64_t connection_id_;
  std::shared_ptr<Link> link_;
};

// A connect request that waits for the program's answer.
struct PendingRequest {
  std::shared_ptr<Link> link;
  uint64_t connection_id = 0;
  uint32_t peer_qp = 0;
  UniqueFd ring;
  std::vector<uint8_t> private_data;
};

class ShmListener final : public Listener {
 public:
  ShmListener(std::shared_ptr<ShmContext> context, std::string service, int backlog);
  ~ShmListener() override { close(); }

  std::string address() const override { return service_; }
  int fileno() const override { return event_.get(); }
  std::shared_ptr<ConnectRequest> next() override;
  void close() override;

  const std::string& service() const { return service_; }
  int socket() const { return socket_.get(); }
  bool push(PendingRequest request);  // false: the backlog is full

 private:
  const std::shared_ptr<ShmContext> context_;
  const std::string service_;
  const size_t backlog_;
  UnsharedFd socket_;
  std::mutex mutex_;
  std::deque<PendingRequest> waiting_;
  EventFd event_;
  std::once_flag closed_;
};

}  // namespace verbena::shm
