// Lets in clients that speak Valkey over RDMA. In the loop's thread, with the engine's lock.
#pragma once

#include <map>

#include "kv/engine.h"
#include "kv/loop.h"
#include "kv/window_link.h"

namespace verbena::kv {

class RdmaDoor;

class RdmaClient : public Client {
 public:
  RdmaClient(RdmaDoor& owner, uint64_t number, std::unique_ptr<WindowLink> carrier,
             std::shared_ptr<Connection> of)
      : Client(number), door(owner), link(std::move(carrier)), connection(std::move(of)) {}
  void wake() override;

  RdmaDoor& door;
  std::shared_ptr<void> kept;  // first in, last out
  std::unique_ptr<WindowLink> link;
  const std::shared_ptr<Connection> connection;
  uint64_t cq_watch = 0, connection_watch = 0, spoke_ns = 0;
};

class RdmaDoor {
 public:
  RdmaDoor(Engine& engine, Loop& loop);

  // A connection that is established, with its link and its queue pair, and what must live as long.
  void admit(std::unique_ptr<WindowLink> link, std::shared_ptr<QueuePair> qp,
             std::shared_ptr<Connection> connection, std::shared_ptr<void> kept);
  size_t clients() {
    const auto held = engine_.lock();
    return clients_.size();
  }
  // Ends them all.
  void close();

 private:
  friend class RdmaClient;
  static constexpr uint64_t kKeepaliveNs = 3'000'000'000;

  void look_after(uint64_t id);
  void flush(RdmaClient& client);
  void remove(RdmaClient& client);

  Engine& engine_;
  Loop& loop_;
  std::map<uint64_t, std::unique_ptr<RdmaClient>> clients_;
};

}  // namespace verbena::kv
