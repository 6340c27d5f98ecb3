// The frontend for clients that use Valkey over RDMA. Serves them on the loop's thread, with the engine's
// lock.
// Depends on the engine, the event loop and verbs; not on sessions or Python.h. Its caller listens, accepts
// and connects the queue pairs.
#pragma once

#include <map>

#include "kv/engine/engine.h"
#include "kv/frontends/event_loop.h"
#include "kv/frontends/valkey_rdma_link.h"

namespace verbena::kv {

class RdmaFrontend;

class RdmaClient : public Client {
 public:
  RdmaClient(RdmaFrontend& owner, uint64_t number, std::unique_ptr<ValkeyRdmaLink> new_link,
             std::shared_ptr<Connection> of)
      : Client(number), frontend(owner), link(std::move(new_link)), connection(std::move(of)) {}
  void queue_write() override;

  RdmaFrontend& frontend;
  std::shared_ptr<void> kept;  // declared before the link and the connection, so destroyed after them
  std::unique_ptr<ValkeyRdmaLink> link;
  const std::shared_ptr<Connection> connection;
  uint64_t cq_watch = 0, connection_watch = 0, last_sent_ns = 0;
  bool keep_alive_due = false;
};

class RdmaFrontend {
 public:
  RdmaFrontend(Engine& engine, EventLoop& loop);

  // Why a connection request from this address must be rejected; empty: accept it.
  std::string_view rejection(std::string_view address) {
    const auto held = engine_.lock();
    return loop_.rejection(address);
  }
  // Takes over an established connection with its link and its queue pair, or disconnects it if it must be
  // rejected by now. `kept` is released after them.
  void admit(std::unique_ptr<ValkeyRdmaLink> link, std::shared_ptr<QueuePair> qp,
             std::shared_ptr<Connection> connection, std::shared_ptr<void> kept);
  size_t clients() {
    const auto held = engine_.lock();
    return clients_.size();
  }
  // Disconnects all clients.
  void close();

 private:
  friend class RdmaClient;
  static constexpr uint64_t kKeepaliveNs = 3'000'000'000;

  void serve(uint64_t id);  // an exception disconnects the client
  void serve(RdmaClient& client);
  void flush(RdmaClient& client);
  void remove(RdmaClient& client);

  Engine& engine_;
  EventLoop& loop_;
  std::map<uint64_t, std::unique_ptr<RdmaClient>> clients_;
  std::string copy_;  // of what a client wrote into its window; at most as long as the window
};

}  // namespace verbena::kv
