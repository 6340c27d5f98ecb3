#include "providers/soft/queue_pair.h"

#include "providers/soft/context.h"
#include "util/error.h"

namespace verbena::soft {
namespace {

SoftCompletionQueue* soft_cq(const std::shared_ptr<CompletionQueue>& cq, const SoftContext& context) {
  auto* soft = dynamic_cast<SoftCompletionQueue*>(cq.get());
  if (!soft || soft->owner() != &context)
    throw Error("invalid_argument", "create queue pair", "the completion queue must belong to this device");
  return soft;
}

SoftSharedReceiveQueue* shared_receives(const std::shared_ptr<SharedReceiveQueue>& srq, uint32_t pd) {
  if (!srq) return nullptr;
  auto* soft = dynamic_cast<SoftSharedReceiveQueue*>(srq.get());
  if (!soft)
    throw Error("invalid_argument", "create queue pair",
                "the shared receive queue must belong to this device");
  if (soft->pd() != pd)
    throw Error("foreign_pd", "create queue pair", "the shared receive queue has another PD");
  return soft;
}

WcOpcode completed_opcode(Opcode opcode) {
  constexpr WcOpcode kOpcodes[] = {WcOpcode::write,    WcOpcode::write, WcOpcode::send,
                                   WcOpcode::send,     WcOpcode::read,  WcOpcode::compare_swap,
                                   WcOpcode::fetch_add};
  return kOpcodes[static_cast<size_t>(opcode)];
}

}  // namespace

SoftQueuePair::SoftQueuePair(std::shared_ptr<SoftDomain> domain, const QpOptions& options, uint32_t number)
    : number_(number),
      send_queue_(options.limits),
      domain_(std::move(domain)),
      options_(options),
      send_cq_(soft_cq(options.send_cq, domain_->context())),
      recv_cq_(soft_cq(options.recv_cq, domain_->context())),
      own_receives_(options.srq ? 0 : options.limits.max_recv, options.limits.max_recv_sge),
      shared_receives_(shared_receives(options.srq, domain_->id())) {}

uint32_t SoftQueuePair::pd() const { return domain_->id(); }
SoftContext& SoftQueuePair::context() const { return domain_->context(); }

PostResult SoftQueuePair::post_send(std::span<const SendRequest> batch) {
  PostResult result;
  {
    const std::lock_guard lock(lock_);
    if (!accepts_sends(state())) return {0, PostError::bad_state};
    const uint32_t unpolled = unpolled_sends_->load(std::memory_order_relaxed);
    if (batch.size() == 1 && send_queue_.allows(batch[0].opcode) &&
        send_at_once(batch[0], options_.signal_all, unpolled)) {
      result.accepted = 1;
    } else {
      const size_t done = options_.signal_all ? 0 : copy_at_once(batch);
      result = post_in_order(batch.subspan(done), unpolled);
      result.accepted += done;
    }
  }
  after_unlock();
  return result;
}

PostResult SoftQueuePair::post_in_order(std::span<const SendRequest> batch, uint32_t unpolled) {
  if (send_queue_.room() < batch.size()) advance();
  const uint64_t first = send_queue_.tail();
  const PostResult result = send_queue_.append(batch, options_.signal_all, unpolled);
  if (state() == QpState::err) {
    flush();
  } else {
    transmit();
  }
  for (size_t i = 0; i < result.accepted; ++i) send_queue_.at(first + i).crc32c = nullptr;
  return result;
}

PostResult SoftQueuePair::post_recv(std::span<const RecvRequest> batch) {
  if (options_.srq || !accepts_receives(state()) || is_closed_.load(std::memory_order_relaxed)) {
    return {0, PostError::bad_state};
  }
  const PostResult result = own_receives_.post(batch);
  // Pairs with the flush at the start of ERR: either the flush sees the receive, or this thread sees ERR.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state() == QpState::err) {
    const std::lock_guard lock(lock_);
    flush();
  } else {
    receive_posted();
  }
  return result;
}

void SoftQueuePair::start() {
  send_cq_->attach(*this);
  if (recv_cq_ != send_cq_) recv_cq_->attach(*this);
}

void SoftQueuePair::wait_for_lock() { const std::lock_guard lock(lock_); }

void SoftQueuePair::progress(PollerSink& sink) {
  if (!lock_.try_lock()) return;
  sink_ = &sink;
  advance();
  sink_ = nullptr;
  lock_.unlock();
  after_unlock();
}

void SoftQueuePair::drive() {
  {
    const std::lock_guard lock(lock_);
    advance();
  }
  after_unlock();
}

QpAttributes SoftQueuePair::attributes() const {
  const std::lock_guard lock(lock_);
  return attributes_;
}

void SoftQueuePair::modify(const QpAttributes& wanted) {
  const std::lock_guard serial(modify_mutex_);
  if (is_closed_.load()) throw Error("closed", "modify queue pair", "the queue pair is closed");
  check_transition(state(), wanted);
  if (wanted.state == QpState::rtr) {
    QpAttributes merged = attributes();
    merge_attributes(merged, wanted);
    connect_wire(merged);
  }
  if (wanted.state == QpState::reset) windows_.invalidate();  // its next peer is another one
  {
    const std::lock_guard lock(lock_);
    if (is_closed_.load()) throw Error("closed", "modify queue pair", "the queue pair is closed");
    // The wire may have failed the QP since the check; only RESET leads out of ERR.
    check_transition(state(), wanted);
    if (wanted.state == QpState::reset) {
      send_queue_.clear();
      own_receives_.clear();
      attributes_ = {};
    }
    merge_attributes(attributes_, wanted);
    if (wanted.state == QpState::err) {
      enter_error();
    } else {
      set_state(wanted.state);
      if (wanted.state == QpState::rts) transmit();
    }
  }
  after_unlock();
}

void SoftQueuePair::set_state(QpState state) {
  attributes_.state = state;
  state_.store(state, std::memory_order_release);
  wire_state_changed(state);
}

void SoftQueuePair::close() {
  std::call_once(closed_, [this] {
    is_closed_.store(true);
    windows_.close();
    {
      const std::lock_guard lock(lock_);
      send_queue_.clear();
      own_receives_.clear();
      if (state() != QpState::reset) set_state(QpState::reset);
    }
    after_unlock();
    send_cq_->detach(*this);
    if (recv_cq_ != send_cq_) recv_cq_->detach(*this);
    context().remove_qp(*this);
    disconnect_wire();
  });
}

bool SoftQueuePair::local_is_valid(uint64_t index, bool for_writing) const {
  if (send_queue_.at(index).flags & send_flag::inline_data) return true;
  return pieces_are_valid(send_queue_.local(index), for_writing);
}

bool SoftQueuePair::pieces_are_valid(std::span<const Sge> pieces, bool for_writing) const {
  for (const Sge& piece : pieces) {
    if (!context().regions().resolve(domain_->id(), piece, for_writing)) return false;
  }
  return true;
}

void SoftQueuePair::reap() {
  while (send_queue_.head() != send_queue_.next()) {
    SendEntry& entry = send_queue_.at(send_queue_.head());
    if (!entry.finished) return;
    if (entry.status != Status::success) return fail(entry.status);
    send_queue_.pop_head();  // before the completion: an overrun empties the queue
    complete_send(entry, Status::success);
  }
}

void SoftQueuePair::complete_send(const SendEntry& entry, Status status) {
  if (status == Status::success && !(entry.flags & send_flag::signaled)) return;
  const bool pushed = send_cq_->push(false, sink_, unpolled_sends_, [&](Completion& out) {
    out.id = entry.id;
    out.status = status;
    out.opcode = completed_opcode(entry.opcode);
    out.has_immediate = false;
    out.immediate = 0;
    out.byte_count = static_cast<uint32_t>(entry.length);
    out.qp_num = number_;
    out.vendor_error = 0;
  });
  if (!pushed && state() != QpState::err) enter_error();
}

void SoftQueuePair::fail(Status first) {
  // The state changes before the completion is visible: a program that sees the completion finds the QP in
  // ERR.
  if (state() != QpState::err) set_state(QpState::err);
  if (send_queue_.head() != send_queue_.tail()) {
    const SendEntry& failed = send_queue_.at(send_queue_.head());
    send_queue_.pop_head();
    complete_send(failed, first);
  }
  enter_error();
}

void SoftQueuePair::enter_error() {
  if (state() != QpState::err) set_state(QpState::err);
  flush();
}

void SoftQueuePair::flush() {
  while (send_queue_.head() != send_queue_.tail()) {
    const SendEntry& flushed = send_queue_.at(send_queue_.head());
    send_queue_.pop_head();
    complete_send(flushed, Status::wr_flush_err);
  }
  send_queue_.clear();
  PostedReceive receive;
  while (own_receives_.take(receive)) {
    complete_receive(receive, Status::wr_flush_err, 0, nullptr, false);
  }
}

bool SoftQueuePair::take_receive(PostedReceive& out) {
  return shared_receives_ ? shared_receives_->take(out) : own_receives_.take(out);
}

void SoftQueuePair::complete_receive(const PostedReceive& receive, Status status, uint32_t bytes,
                                     const uint32_t* immediate, bool solicited, WcOpcode opcode) {
  const bool pushed = recv_cq_->push(solicited, sink_, nullptr, [&](Completion& out) {
    out.id = receive.id;
    out.status = status;
    out.opcode = opcode;
    out.has_immediate = immediate != nullptr;
    out.immediate = immediate ? *immediate : 0;
    out.byte_count = bytes;
    out.qp_num = number_;
    out.vendor_error = 0;
  });
  if (!pushed && state() != QpState::err) enter_error();
}

}  // namespace verbena::soft
