// The connection manager of the fake wire: listeners by name, and the two ends of each connection. Both ends
// share a Link that changes in one step, so they never disagree.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "providers/fake/fabric.h"
#include "providers/fake/timed_event.h"
#include "verbs/provider.h"

namespace verbena::fake {

class FakeQueuePair;

constexpr size_t kMaxPrivateData = 512;

enum class Side : uint8_t { initiator, listener };

// What both ends of a connection share. Thread-safe; queue pairs are moved outside its lock.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(const std::shared_ptr<FakeQueuePair>& initiator, std::string initiator_name, std::string listener_name,
       const ConnectParams& params);

  // Throws when a queue pair is in the wrong state, or when the initiator has given up: peer_died,
  // connect_timeout.
  void accept(const std::shared_ptr<FakeQueuePair>& qp, const ConnectParams& params);
  void refuse(ConnectionState how, ErrorCode error_code, std::span<const uint8_t> private_data);
  void disconnect();

  ConnectionState state();
  ErrorCode error_code();
  std::string name_of(Side side) const { return side == Side::initiator ? initiator_name_ : listener_name_; }
  std::vector<uint8_t> data_from(Side side);
  TimedEvent& event(Side side) { return events_[static_cast<size_t>(side)]; }

 private:
  bool try_connect(FakeQueuePair& initiator, const Address& listener) const;
  [[noreturn]] void throw_peer_died();
  void expire();
  void settle(ConnectionState state, ErrorCode error_code);

  const std::string initiator_name_, listener_name_;
  const ConnectParams initiator_params_;
  const uint64_t deadline_ns_;
  std::array<TimedEvent, 2> events_;
  std::mutex mutex_;
  std::array<std::weak_ptr<FakeQueuePair>, 2> qps_;  // the initiator's never changes
  ConnectionState state_ = ConnectionState::connecting;
  ErrorCode error_code_;
  std::vector<uint8_t> answer_;
};

// Throws address_in_use. For an empty name, one is chosen.
std::shared_ptr<Listener> listen(const std::string& name, int backlog);
// Throws limit_exceeded for too much private data. Every other outcome is the connection's state.
std::shared_ptr<Connection> connect(const std::shared_ptr<QueuePair>& qp, const std::string& name,
                                    const ConnectParams& params);

}  // namespace verbena::fake
