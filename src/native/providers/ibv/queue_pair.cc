#include "providers/ibv/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "providers/ibv/cm/connection.h"
#include "providers/ibv/qp_attributes.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/waiter.h"

namespace verbena::ibv {
namespace {

constexpr const char* kCreate = "create queue pair";
constexpr uint64_t kDrainNs = 1'000'000'000;

std::shared_ptr<IbvCompletionQueue> own_cq(const std::shared_ptr<CompletionQueue>& cq,
                                           const IbvDomain& domain) {
  auto own = std::dynamic_pointer_cast<IbvCompletionQueue>(cq);
  if (!own || &own->context() != domain.context().get())
    throw Error("invalid_argument", kCreate, "the completion queue must belong to this context");
  return own;
}

std::shared_ptr<IbvSharedReceiveQueue> own_srq(const std::shared_ptr<SharedReceiveQueue>& srq,
                                               const IbvDomain& domain) {
  if (!srq) return nullptr;
  auto own = std::dynamic_pointer_cast<IbvSharedReceiveQueue>(srq);
  if (!own) throw Error("invalid_argument", kCreate, "the shared receive queue must belong to this device");
  if (&own->domain() != &domain)
    throw Error("foreign_pd", kCreate, "the shared receive queue has another PD");
  return own;
}

// Checked here for a clear error text; the device decides in the end.
void check_limits(const QpLimits& wanted, const DeviceAttributes& device) {
  const auto check = [](const char* name, uint32_t value, uint32_t limit) {
    if (value > limit)
      throw Error("limit_exceeded", kCreate, std::string(name) + " is above " + std::to_string(limit));
  };
  if (wanted.max_send == 0) throw Error("invalid_argument", kCreate, "max_send must be at least 1");
  check("max_send", wanted.max_send, device.max_qp_wr);
  check("max_recv", wanted.max_recv, device.max_qp_wr);
  check("max_send_sge", wanted.max_send_sge, device.max_sge);
  check("max_recv_sge", wanted.max_recv_sge, device.max_sge);
  // Up to the default it is a preference, which a device may grant in part.
  if (wanted.max_inline > QpLimits{}.max_inline) check("max_inline", wanted.max_inline, device.max_inline);
}

}  // namespace

IbvQueuePair::IbvQueuePair(std::shared_ptr<IbvDomain> domain, const QpOptions& options)
    : domain_(std::move(domain)),
      use_(domain_->context()->use(kCreate)),
      send_cq_(own_cq(options.send_cq, *domain_)),
      recv_cq_(own_cq(options.recv_cq, *domain_)),
      srq_(own_srq(options.srq, *domain_)),
      send_queue_(domain_->context()->next_queue()),
      recv_queue_(domain_->context()->next_queue()),
      signal_all_(options.signal_all),
      limits_(options.limits) {
  const DeviceAttributes& device = context().limits();
  check_limits(limits_, device);
  ibv_qp_init_attr attr{};
  attr.qp_context = this;
  attr.send_cq = send_cq_->get();
  attr.recv_cq = recv_cq_->get();
  attr.srq = srq_ ? srq_->get() : nullptr;
  if (context().has_windows()) bind_slots_ = std::min(kBindSlots, device.max_qp_wr - limits_.max_send);
  attr.cap = {.max_send_wr = limits_.max_send + bind_slots_,
              .max_recv_wr = srq_ ? 0 : limits_.max_recv,
              .max_send_sge = std::max(limits_.max_send_sge, 1u),
              .max_recv_sge = srq_ ? 0 : std::max(limits_.max_recv_sge, 1u),
              .max_inline_data = std::min(limits_.max_inline, device.max_inline)};
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = signal_all_ ? 1 : 0;
  qp_ = library().create_qp(domain_->get(), &attr);
  if (!qp_)
    throw Error("limit_exceeded", kCreate, "the device refused these limits, or has no room left", errno);
  number_ = qp_->qp_num;
  limits_.max_send = std::max(limits_.max_send + bind_slots_, attr.cap.max_send_wr) - bind_slots_;
  limits_.max_send_sge = std::max(limits_.max_send_sge, attr.cap.max_send_sge);
  limits_.max_inline = attr.cap.max_inline_data;
  if (!srq_) {
    limits_.max_recv = std::max(limits_.max_recv, attr.cap.max_recv_wr);
    limits_.max_recv_sge = std::max(limits_.max_recv_sge, attr.cap.max_recv_sge);
  }
  sends_ = std::make_unique<SlotRing>(limits_.max_send, bind_slots_);
  receives_ = std::make_unique<SlotRing>(srq_ ? 1 : std::max(limits_.max_recv, 1u));
}

void IbvQueuePair::start() {
  send_cq_->attach(send_queue_, *sends_);
  send_cq_->attach(*this);
  if (recv_cq_ != send_cq_) recv_cq_->attach(*this);
  if (srq_) {
    srq_->report_to(recv_cq_);
  } else {
    recv_cq_->attach(recv_queue_, *receives_);
  }
}

Capabilities IbvQueuePair::capabilities() const { return context().limits().capabilities; }

QpState IbvQueuePair::device_state() const {
  if (context().is_iwarp()) {
    // Soft-iWARP does not report it: use what the connection and the completions have shown.
    const QpState state = state_.load(std::memory_order_acquire);
    return state == QpState::rts && (sends_->failed() || receives_->failed()) ? QpState::err : state;
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (closed_ || library().query_qp(qp_, &attr, IBV_QP_STATE, &init) != 0)
    return state_.load(std::memory_order_acquire);
  return static_cast<QpState>(attr.qp_state);
}

QpState IbvQueuePair::state() const {
  const std::lock_guard lock(modify_mutex_);
  return device_state();
}

QpAttributes IbvQueuePair::attributes() const {
  const std::lock_guard lock(modify_mutex_);
  QpAttributes all = attributes_;
  all.state = device_state();
  return all;
}

void IbvQueuePair::modify(const QpAttributes& wanted) {
  if (wanted.state == QpState::reset) windows_.invalidate();  // its next peer is another one
  const std::lock_guard lock(modify_mutex_);
  if (closed_) throw Error("closed", "modify queue pair", "the queue pair is closed");
  QpAttributes path = wanted;
  path.port = 1;  // the rules of the state diagram know software devices only, which have one port
  const QpState from = device_state();
  soft::check_transition(from, path);
  path.port = wanted.present & qp_attr::port ? wanted.port : attributes_.port;
  if (path.port == 0 || path.port > context().limits().ports.size())
    throw Error("invalid_argument", "modify queue pair",
                "the device has no port " + std::to_string(path.port));
  int mask = 0;
  ibv_qp_attr attr = to_device(path, mask);
  if (wanted.present & qp_attr::address) set_path(context().get(), path, attr);
  if (from == QpState::sqd && (path.state == QpState::rts || path.state == QpState::sqd)) await_drained();
  modify_device(attr, mask, "modify queue pair");
  soft::merge_attributes(attributes_, path);
  if (from == QpState::sqd && path.state == QpState::rts) resume_sends();
}

void IbvQueuePair::apply(ibv_qp_attr& attr, int mask, const char* operation) {
  const std::lock_guard lock(modify_mutex_);
  if (closed_) throw Error("closed", operation, "the queue pair is closed");
  modify_device(attr, mask, operation);
  soft::merge_attributes(attributes_, from_device(attr, mask));
}

void IbvQueuePair::modify_device(ibv_qp_attr& attr, int mask, const char* operation) {
  const auto to = static_cast<QpState>(attr.qp_state);
  // No post may come between the device's reset and ours.
  const bool resets = to == QpState::reset;
  if (resets) {
    send_lock_.lock();
    recv_lock_.lock();
  }
  // Soft-RoCE takes the largest count for "without limit", and would never notice a dead peer.
  constexpr uint8_t kUnlimitedOnSoftRoce = 7;
  if ((mask & IBV_QP_RETRY_CNT) && context().is_soft_roce())
    attr.retry_cnt = std::min<uint8_t>(attr.retry_cnt, kUnlimitedOnSoftRoce - 1);
  const int failure = library().modify_qp(qp_, &attr, mask);
  if (failure == 0) {
    state_.store(to, std::memory_order_release);
    if (resets) {
      sends_->reset();
      receives_->reset();
      attributes_ = {};
    }
  }
  if (resets) {
    recv_lock_.unlock();
    send_lock_.unlock();
  }
  if (failure == 0) return;
  const std::string edge = std::string("the device does not go to ") + soft::name_of(to);
  if (to == QpState::err || to == QpState::reset) throw Error("bad_transition", operation, edge, failure);
  throw Error(failure == ETIMEDOUT || failure == EHOSTUNREACH || failure == ENETUNREACH
                  ? ErrorCode("unreachable")
                  : "invalid_argument",
              operation, edge + " with these attributes", failure);
}

// A device that drains its send queue refuses to leave SQD, and even an empty queue takes a moment.
void IbvQueuePair::await_drained() const {
  Waiter(kDrainNs, kNever).spin<1>([this] {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    if (library().query_qp(qp_, &attr, IBV_QP_STATE, &init) != 0 || !attr.sq_draining) return true;
    std::this_thread::yield();
    return false;
  });
}

void IbvQueuePair::move_to_err() {
  const std::lock_guard lock(modify_mutex_);
  if (closed_ || device_state() == QpState::reset) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (library().modify_qp(qp_, &attr, IBV_QP_STATE) == 0)
    state_.store(QpState::err, std::memory_order_release);
}

void IbvQueuePair::set_connection(const std::shared_ptr<IbvConnection>& connection) {
  const std::lock_guard lock(connection_lock_);
  connection_ = connection;
}

std::shared_ptr<IbvConnection> IbvQueuePair::connection() const {
  const std::lock_guard lock(connection_lock_);
  return connection_.lock();
}

// What is still posted is flushed, even if the device did not do it.
void IbvQueuePair::on_removal() {
  {
    const std::lock_guard lock(modify_mutex_);
    if (closed_) return;
  }
  move_to_err();
  send_cq_->collect();
  recv_cq_->collect();
  close();
  send_cq_->add(sends_->flush(number_));
  if (!srq_) recv_cq_->add(receives_->flush(number_));
}

void IbvQueuePair::close() {
  if (const auto connection = this->connection()) connection->disconnect();
  windows_.close();  // the device destroys no queue pair with a bound window
  {
    const std::lock_guard lock(modify_mutex_);
    if (closed_) return;
    closed_ = true;
    // RESET accepts no posts, and after taking the post locks no post is in progress.
    state_.store(QpState::reset, std::memory_order_release);
    const std::scoped_lock posts(send_lock_, recv_lock_);
  }
  // Without locks: it waits until the loop's thread has acknowledged this queue pair's events.
  library().destroy_qp(qp_);
  use_.end();
  send_cq_->detach(*this);
  recv_cq_->detach(*this);
  send_cq_->detach(send_queue_);
  if (cq_has_bind_room_.exchange(false)) send_cq_->give_back_room(bind_slots_);
  recv_cq_->detach(recv_queue_);
}

}  // namespace verbena::ibv
