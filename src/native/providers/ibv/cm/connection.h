// One end of a connection of the kernel's RDMA connection manager (librdmacm). The program creates the queue
// pair before there is an id. So this class moves it through its states with the attributes that the manager
// computes, and gives the manager only its number.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "providers/ibv/cm/address.h"
#include "providers/ibv/cm/event_loop.h"
#include "providers/ibv/context.h"
#include "providers/ibv/queue_pair.h"
#include "verbs/lazy_signal.h"
#include "verbs/provider.h"

namespace verbena::ibv {

// The manager's messages, each with its own limit of private data.
enum class PrivateData : uint8_t { connect, accept, reject };
void check_private_data(size_t size, PrivateData message, const IbvContext& context, const char* operation);
// The private data that the peer sent. InfiniBand pads its messages with zeros and does not send the length:
// trailing zeros are removed.
std::vector<uint8_t> sent_data(const std::vector<uint8_t>& received, const IbvContext& context);

// The device's own address, for a listener or initiator that gives none; a wildcard where the device has
// none.
SocketAddress own_address(const IbvContext& context, uint16_t port);

// The queue pair of this device behind a contract pointer. Throws for any other, for one that is not in RESET
// or INIT, and for too much private data.
std::shared_ptr<IbvQueuePair> managed_qp(const std::shared_ptr<QueuePair>& qp, const IbvContext& context,
                                         size_t private_bytes, PrivateData message, const char* operation);

class IbvConnection final : public Connection,
                            public CmTarget,
                            public Removable,
                            public std::enable_shared_from_this<IbvConnection> {
 public:
  IbvConnection(std::shared_ptr<IbvContext> context, std::shared_ptr<IbvQueuePair> qp, std::string peer,
                const ConnectParams& params);
  ~IbvConnection() override;

  ConnectionState state() const override;
  ErrorCode error_code() const override;
  std::string error_detail() const override;
  std::string peer() const override { return peer_; }
  std::vector<uint8_t> private_data() const override;
  int fileno() const override { return changed_.fileno(); }
  void acknowledge() override { changed_.clear(); }
  bool on_change(std::function<void()> callback) override {
    changed_.on_signal(std::move(callback));
    return true;
  }
  void disconnect() override;
  void on_removal() override;

  // Exactly one of the two is called. start() throws for an invalid address; accept() when the initiator has
  // gone.
  void start(const std::string& address);
  void accept(rdma_cm_id* id, uint8_t responder_resources, uint8_t initiator_depth);

  void on_event(const CmEvent& event) override;
  uint64_t deadline_ns() const override;
  void on_deadline() override { fail("connect_timeout"); }
  void on_first_message();  // data overtook the peer's last message: the connection is established

 private:
  void resolve_soon(const SocketAddress& to);
  void resolve(const SocketAddress& to);
  void fail(ErrorCode code);
  // All under mutex_; the steps of set-up throw Error.
  bool is_over() const;
  void change(ConnectionState state, ErrorCode code = {});
  void resolve_address();
  void resolve_route();
  void request();
  void finish(const CmEvent& response);
  void initialise_qp();
  void move_qp_to_rts(uint8_t responder_resources, uint8_t initiator_depth);
  rdma_conn_param parameters() const;
  int milliseconds_left() const;
  void on_end();
  void on_reject(const CmEvent& event);

  const std::shared_ptr<IbvContext> context_;
  const std::shared_ptr<IbvQueuePair> qp_;
  const std::string peer_;
  const ConnectParams params_;
  const uint64_t deadline_ns_;
  const LazySignal changed_;
  mutable std::mutex mutex_;  // taken before the queue pair's locks
  rdma_cm_id* id_ = nullptr;
  SocketAddress to_;
  bool is_beyond_init_ = false;  // the queue pair is beyond INIT and must go to ERR at the end
  ConnectionState state_ = ConnectionState::connecting;
  ErrorCode code_;
  bool is_resolved_ = false;  // the manager has resolved the peer's address
  std::vector<uint8_t> private_data_;
};

}  // namespace verbena::ibv
