#include <utility>

#include "providers/fake/connection.h"
#include "providers/fake/queue_pair.h"
#include "util/clock.h"

namespace verbena::fake {
namespace {

constexpr size_t kCaller = static_cast<size_t>(Side::caller), kListener = static_cast<size_t>(Side::listener);

}  // namespace

Link::Link(const std::shared_ptr<FakeQueuePair>& caller, std::string caller_name, std::string listener_name,
           const ConnectParams& params)
    : caller_name_(std::move(caller_name)),
      listener_name_(std::move(listener_name)),
      caller_params_(params),
      deadline_ns_(now_ns() + uint64_t{params.timeout_ms} * 1'000'000),
      qps_{caller, {}} {
  bell(Side::caller).signal_after_ms(params.timeout_ms);
}

void Link::accept(const std::shared_ptr<FakeQueuePair>& qp, const ConnectParams& params) {
  const auto caller = qps_[kCaller].lock();
  if (!caller || state() != ConnectionState::connecting) throw_gone();
  // The listening end first: it must be able to receive before the initiator can send.
  qp->connect_to(caller->address(), params);
  qp->set_link(shared_from_this());
  if (try_connect(*caller, qp->address())) {
    const std::lock_guard lock(mutex_);
    if (state_ == ConnectionState::connecting) {
      qps_[kListener] = qp;
      answer_ = params.private_data;
      return settle(ConnectionState::established, {});
    }
  }
  refuse(ConnectionState::failed, "peer_died", {});
  qp->link_ended(*this);
  throw_gone();
}

bool Link::try_connect(FakeQueuePair& caller, const Address& listener) const {
  try {
    caller.connect_to(listener, caller_params_);
    return true;
  } catch (const Error&) {
    return false;  // closed, or used for something else
  }
}

void Link::throw_gone() {
  const bool timed_out = error_code() == "connect_timeout";
  throw Error(timed_out ? ErrorCode("connect_timeout") : "peer_died", "accept", "the caller has gone");
}

void Link::refuse(ConnectionState how, ErrorCode error_code, std::span<const uint8_t> private_data) {
  const std::lock_guard lock(mutex_);
  if (state_ != ConnectionState::connecting) return;
  answer_.assign(private_data.begin(), private_data.end());
  settle(how, error_code);
}

void Link::disconnect() {
  std::shared_ptr<FakeQueuePair> caller, listener;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ConnectionState::established && state_ != ConnectionState::connecting) return;
    settle(ConnectionState::disconnected, {});
    caller = qps_[kCaller].lock();
    listener = qps_[kListener].lock();
  }
  if (caller) caller->link_ended(*this);
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
  return side == Side::caller ? caller_params_.private_data : answer_;
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
  bell(Side::caller).signal_after_ms(0);
  for (const TimedEvent& each : bells_) each.signal();
}

}  // namespace verbena::fake
