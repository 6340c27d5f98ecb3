#include <utility>

#include "providers/fake/connection.h"
#include "providers/fake/queue_pair.h"
#include "util/clock.h"

namespace verbena::fake {
namespace {

constexpr size_t kInitiator = static_cast<size_t>(Side::initiator),
                 kListener = static_cast<size_t>(Side::listener);

}  // namespace

Link::Link(const std::shared_ptr<FakeQueuePair>& initiator, std::string initiator_name,
           std::string listener_name, const ConnectParams& params)
    : initiator_name_(std::move(initiator_name)),
      listener_name_(std::move(listener_name)),
      initiator_params_(params),
      deadline_ns_(now_ns() + uint64_t{params.timeout_ms} * 1'000'000),
      qps_{initiator, {}} {
  event(Side::initiator).signal_after_ms(params.timeout_ms);
}

void Link::accept(const std::shared_ptr<FakeQueuePair>& qp, const ConnectParams& params) {
  const auto initiator = qps_[kInitiator].lock();
  if (!initiator || state() != ConnectionState::connecting) throw_peer_died();
  // The listening end first: it must be able to receive before the initiator can send.
  qp->connect_to(initiator->address(), params);
  qp->set_link(shared_from_this());
  if (try_connect(*initiator, qp->address())) {
    const std::lock_guard lock(mutex_);
    if (state_ == ConnectionState::connecting) {
      qps_[kListener] = qp;
      answer_ = params.private_data;
      return settle(ConnectionState::established, {});
    }
  }
  refuse(ConnectionState::failed, "peer_died", {});
  qp->link_ended(*this);
  throw_peer_died();
}

bool Link::try_connect(FakeQueuePair& initiator, const Address& listener) const {
  try {
    initiator.connect_to(listener, initiator_params_);
    return true;
  } catch (const Error&) {
    return false;  // closed, or used for something else
  }
}

void Link::throw_peer_died() {
  const bool timed_out = error_code() == "connect_timeout";
  throw Error(timed_out ? ErrorCode("connect_timeout") : "peer_died", "accept", "the initiator has gone");
}

void Link::refuse(ConnectionState how, ErrorCode error_code, std::span<const uint8_t> private_data) {
  const std::lock_guard lock(mutex_);
  if (state_ != ConnectionState::connecting) return;
  answer_.assign(private_data.begin(), private_data.end());
  settle(how, error_code);
}

void Link::disconnect() {
  std::shared_ptr<FakeQueuePair> initiator, listener;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ConnectionState::established && state_ != ConnectionState::connecting) return;
    settle(ConnectionState::disconnected, {});
    initiator = qps_[kInitiator].lock();
    listener = qps_[kListener].lock();
  }
  if (initiator) initiator->link_ended(*this);
  if (listener) listener->link_ended(*this);
}

ConnectionState Link::state() {
  const std::lock_guard lock(mutex_);
  expire();
  return state_;
}

ErrorCode Link::error_code() {
  const std::lock_guard lock(mutex_);
  expire();
  return error_code_;
}

std::vector<uint8_t> Link::data_from(Side side) {
  const std::lock_guard lock(mutex_);
  return side == Side::initiator ? initiator_params_.private_data : answer_;
}

// There is no timer thread: the deadline is checked whenever the link is used.
void Link::expire() {
  if (state_ == ConnectionState::connecting && now_ns() >= deadline_ns_) {
    settle(ConnectionState::failed, "connect_timeout");
  }
}

void Link::settle(ConnectionState state, ErrorCode error_code) {
  state_ = state;
  error_code_ = error_code;
  event(Side::initiator).signal_after_ms(0);
  for (const TimedEvent& each : events_) each.signal();
}

}  // namespace verbena::fake
