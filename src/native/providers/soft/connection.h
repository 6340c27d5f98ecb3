// SoftConnection: one end of a managed connection on a software wire, with its state and its queue pair's
// transitions. A wire derives from it and reports what the peer sends.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "providers/soft/queue_pair.h"
#include "verbs/lazy_signal.h"

namespace verbena::soft {

// Throws for private data that is too long for the wire's messages.
void check_private_data(std::span<const uint8_t> data, size_t limit, const char* operation);

// Moves a queue pair from RESET to INIT; throws when it is in neither state.
void prepare_for_connection(SoftQueuePair& qp);

class SoftConnection : public Connection {
 public:
  ConnectionState state() const final;
  ErrorCode error_code() const final;
  std::string error_detail() const final;
  std::string peer() const final { return peer_; }
  std::vector<uint8_t> private_data() const final;
  int fileno() const final { return changed_.fileno(); }
  void acknowledge() final { changed_.clear(); }
  bool on_change(std::function<void()> callback) final {
    changed_.on_signal(std::move(callback));
    return true;
  }

  uint32_t qp_number() const { return qp_->number(); }
  uint64_t deadline_ns() const { return deadline_ns_; }
  bool is_connecting() const { return state() == ConnectionState::connecting; }

 protected:
  SoftConnection(std::shared_ptr<SoftQueuePair> qp, std::string peer, const ConnectParams& params);

  // Leaves `connecting` or `established`; false when the connection has ended already.
  bool change(ConnectionState state, ErrorCode code = {}, std::span<const uint8_t> private_data = {},
              std::string detail = {});
  // Moves the queue pair, which the wire has connected to its peer, to RTS.
  void move_qp_to_rts(const Gid& peer_gid, uint32_t peer_qp);
  void move_qp_to_err();

  const ConnectParams params_;

 private:
  const std::shared_ptr<SoftQueuePair> qp_;
  const std::string peer_;
  const uint64_t deadline_ns_;
  mutable std::mutex mutex_;
  ConnectionState state_ = ConnectionState::connecting;
  ErrorCode code_;
  std::string detail_;
  std::vector<uint8_t> private_data_;
  const LazySignal changed_;
};

}  // namespace verbena::soft
