// SoftQueuePair: what all software queue pairs share (queues, states, flushing, completions in posting
// order). A wire derives from it and moves the bytes in transmit() and advance().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "providers/soft/completion_queue.h"
#include "providers/soft/qp_states.h"
#include "providers/soft/receive_queue.h"
#include "providers/soft/regions.h"
#include "providers/soft/send_queue.h"
#include "providers/soft/windows.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::soft {

class SoftContext;
class SoftDomain;

class SoftQueuePair : public QueuePair, public Progressor {
 public:
  SoftQueuePair(std::shared_ptr<SoftDomain> domain, const QpOptions& options, uint32_t number);

  PostResult post_send(std::span<const SendRequest> batch) final;
  PostResult post_recv(std::span<const RecvRequest> batch) final;
  uint32_t pd() const;
  const SoftDomain* domain() const { return domain_.get(); }
  BoundWindows& windows() { return windows_; }
  uint32_t number() const final { return number_; }
  QpState state() const final { return state_.load(std::memory_order_acquire); }
  QpLimits limits() const final { return options_.limits; }
  QpAttributes attributes() const final;
  void modify(const QpAttributes& wanted) final;
  void close() final;

  void start();                           // joins its completion queues; called once, after construction
  void wait_for_lock();                   // returns when every thread that held the QP's lock has released it
  void progress(PollerSink& sink) final;  // for poll(): returns at once when another thread holds the lock
  void drive();  // for a progress thread: waits for the lock, so that nothing is missed

 protected:
  // Implemented by the wire. All but connect_wire() run under lock_.
  virtual void connect_wire(const QpAttributes& attributes) = 0;  // INIT → RTR; may block; throws
  virtual void wire_state_changed(QpState state) = 0;  // a new state is in force: the wire informs the peer
  virtual void transmit() = 0;  // passes entries next()..tail() to the wire and completes finished ones
  virtual void advance() = 0;   // receives what has arrived, then calls transmit()
  // Fast path for one request with nothing in front of it: true if it was sent and entered in the queue.
  virtual bool send_at_once(const SendRequest&, bool /*signal_all*/, uint32_t /*reserved*/) { return false; }
  // Fast path for unsignaled READs, or WRITEs, at the head of a batch: the number of requests that are done.
  virtual size_t copy_at_once(std::span<const SendRequest>) { return 0; }
  virtual void after_unlock() {}       // rings doorbells, outside the lock
  virtual void receive_posted() {}     // a receive was posted; called without the lock
  virtual void disconnect_wire() = 0;  // part of close(): called once, without the lock

  bool is_closed() const { return is_closed_.load(); }
  bool may_transmit() const { return state() == QpState::rts; }
  // Checks the lkeys of an entry; false means LOC_PROT_ERR.
  bool local_is_valid(uint64_t index, bool for_writing) const;
  bool pieces_are_valid(std::span<const Sge> pieces, bool for_writing) const;
  // Completes finished entries from the head on; an entry with an error status moves the QP to ERR.
  void reap();
  // Moves the QP to ERR: entry head() completes with `first`, everything else is flushed.
  void fail(Status first);
  void enter_error();
  bool take_receive(PostedReceive& out);
  void complete_receive(const PostedReceive& receive, Status status, uint32_t bytes,
                        const uint32_t* immediate, bool solicited, WcOpcode opcode = WcOpcode::recv);
  SoftCompletionQueue& recv_cq() { return *recv_cq_; }
  SoftContext& context() const;

  const uint32_t number_;
  mutable Spinlock lock_;
  SendQueue send_queue_;
  QpAttributes attributes_;

 private:
  PostResult post_in_order(std::span<const SendRequest> batch, uint32_t unpolled);
  void complete_send(const SendEntry& entry, Status status);
  void set_state(QpState state);
  void flush();

  const std::shared_ptr<SoftDomain> domain_;
  const QpOptions options_;
  SoftCompletionQueue* const send_cq_;
  SoftCompletionQueue* const recv_cq_;
  const UnpolledCount unpolled_sends_ = std::make_shared<std::atomic<uint32_t>>(0);
  PollerSink* sink_ = nullptr;  // under lock_: the poll() that drives this QP
  ReceiveQueue own_receives_;
  SoftSharedReceiveQueue* const shared_receives_;  // or nullptr
  std::atomic<QpState> state_{QpState::reset};
  std::mutex modify_mutex_;
  std::once_flag closed_;
  std::atomic<bool> is_closed_{false};
  BoundWindows windows_;
};

}  // namespace verbena::soft
