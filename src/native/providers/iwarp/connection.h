// The connection manager of the iWARP wire: listeners, connect requests and connections, addressed by
// host:port.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "providers/iwarp/handshake.h"
#include "providers/soft/connection.h"
#include "util/fd.h"
#include "verbs/port_sharing.h"
#include "verbs/provider.h"

namespace verbena::iwarp {

class IwarpContext;
class IwarpQueuePair;

// The iWARP queue pair behind a contract pointer, moved to INIT if it was in RESET. Throws for any other
// queue pair and for parameters out of range.
std::shared_ptr<IwarpQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp, const ConnectParams& params);

class IwarpConnection final : public soft::SoftConnection {
 public:
  IwarpConnection(std::shared_ptr<IwarpContext> context, std::shared_ptr<IwarpQueuePair> qp, std::string peer,
                  const ConnectParams& params);
  ~IwarpConnection() override;

  void disconnect() override;

  uint64_t id() const { return id_; }
  // Moves the queue pair to RTS on this socket. A responder sends `reply` first. Throws.
  void bring_up(net::StreamSocket socket, const Agreement& agreement, const std::vector<uint8_t>& reply);

  void on_reply(Handshake& handshake);
  void on_failure(ErrorCode code, std::string detail = {});
  void on_established() { change(ConnectionState::established); }
  void on_lost();

 private:
  const std::shared_ptr<IwarpContext> context_;
  IwarpQueuePair& qp_;
  const uint64_t id_;
};

class IwarpListener final : public SocketListener {
 public:
  IwarpListener(std::shared_ptr<IwarpContext> context, const std::string& address, int backlog);
  // Without a port: for connections that take_over() gets.
  IwarpListener(std::shared_ptr<IwarpContext> context, int backlog);
  ~IwarpListener() override { close(); }

  std::string address() const override { return address_; }
  int fileno() const override { return event_.get(); }
  std::shared_ptr<ConnectRequest> next() override;
  void close() override;
  void take_over(UniqueFd socket, uint32_t timeout_ms) override;

  int endpoint_id() const { return endpoint_id_; }
  bool push(std::unique_ptr<Handshake> request);  // false: the backlog is full

 private:
  const std::shared_ptr<IwarpContext> context_;
  const size_t backlog_;
  UnsharedFd socket_;     // empty with a StreamTransport, or without a port
  int endpoint_id_ = -1;  // the key of this listener in the context
  std::string address_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Handshake>> waiting_;
  EventFd event_;
  std::once_flag closed_;
};

}  // namespace verbena::iwarp
