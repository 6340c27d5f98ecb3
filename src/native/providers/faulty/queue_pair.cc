#include "providers/faulty/queue_pair.h"

#include <sys/timerfd.h>

#include <utility>

#include "providers/faulty/completion_queue.h"

namespace verbena::faulty {
namespace {

UniqueFd make_timer() {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) throw Error("fd_limit", "create queue pair", "timerfd_create() failed", errno);
  return timer;
}

void take_to_error(QueuePair& qp) {
  try {
    if (qp.state() != QpState::err) qp.modify({.state = QpState::err});
  } catch (const Error&) {
    // The queue pair was closed: nothing is left to break.
  }
}

}  // namespace

FaultyQueuePair::FaultyQueuePair(std::shared_ptr<FaultyProtectionDomain> pd, std::shared_ptr<FaultPlan> plan,
                                 std::shared_ptr<Peers> peers, std::shared_ptr<QueuePair> inner,
                                 std::shared_ptr<CompletionQueue> inner_sends,
                                 std::shared_ptr<FaultyCompletionQueue> send_cq,
                                 std::shared_ptr<FaultyCompletionQueue> recv_cq, bool signal_all)
    : pd_(std::move(pd)),
      plan_(std::move(plan)),
      peers_(std::move(peers)),
      inner_(std::move(inner)),
      inner_sends_(std::move(inner_sends)),
      send_cq_(std::move(send_cq)),
      recv_cq_(std::move(recv_cq)),
      limits_(inner_->limits()),
      signal_all_(signal_all),
      timer_(make_timer()) {}

void FaultyQueuePair::attach() {
  peers_->add(inner_);
  send_cq_->watch(inner_sends_->fileno());
  send_cq_->watch(timer_.get());
  send_cq_->attach(shared_from_this());
  if (recv_cq_ == send_cq_) return;
  recv_cq_->watch(timer_.get());
  recv_cq_->attach(shared_from_this());
}

void FaultyQueuePair::modify(const QpAttributes& wanted) {
  const std::lock_guard lock(mutex_);
  inner_->modify(wanted);
  if (wanted.state == QpState::reset) {
    first_ += queue_.size();
    issued_ = 0;
    queue_.clear();
  }
  advance_locked();
  send_cq_->announce();
}

void FaultyQueuePair::close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  send_cq_->unwatch(inner_sends_->fileno());
  for (const auto& cq : {send_cq_, recv_cq_}) {
    cq->unwatch(timer_.get());
    cq->detach(*this);
  }
  peers_->remove(*inner_);
  inner_->close();
  inner_sends_->close();
  const std::lock_guard lock(mutex_);
  queue_.clear();  // only now: the inner wire may have been reading private copies
}

void FaultyQueuePair::set_connection(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connection_ = connection;
}

void FaultyQueuePair::arm() { inner_sends_->arm(false); }

void FaultyQueuePair::acknowledge() {
  inner_sends_->acknowledge();
  uint64_t expirations;
  [[maybe_unused]] const ssize_t taken = ::read(timer_.get(), &expirations, sizeof expirations);
}

void FaultyQueuePair::set_timer(uint64_t delay_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  const itimerspec when = {.it_interval = {},
                           .it_value = {.tv_sec = static_cast<time_t>(delay_ns / kSecond),
                                        .tv_nsec = static_cast<long>(delay_ns % kSecond)}};
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  timer_set_ = delay_ns != 0;
}

void FaultyQueuePair::enter_error() { take_to_error(*inner_); }

void FaultyQueuePair::break_link() {
  if (const auto connection = connection_.lock()) connection->disconnect();
  if (const auto peer = peers_->peer_of(*inner_)) take_to_error(*peer);
}

}  // namespace verbena::faulty
