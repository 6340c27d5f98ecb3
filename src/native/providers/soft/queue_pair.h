// What every software queue pair has in common: queues, states, flushing, completions in posting order.
// A wire derives from SoftQueuePair and moves the bytes in transmit() and advance().
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
  uint32_t number() const final { return number_; }
  QpState state() const final { return state_.load(std::memory_order_acquire); }
  QpLimits limits() const final { return options_.limits; }
  QpAttributes attributes() const final;
  void modify(const QpAttributes& wanted) final;
  void close() final;

  void start();      // joins its completion queues; called once, when construction is over
  void wait_turn();  // returns when no thread is inside the QP's lock that was there before
  void progress(PollerSink& sink) final;  // for a poller: skips when another thread is at it
  void drive();  // for a progress thread: waits its turn, so that nothing is overlooked

 protected:
  // The wire. All but connect_wire() run under lock_.
  virtual void connect_wire(const QpAttributes& attributes) = 0;  // INIT → RTR; may block; throws
  virtual void wire_state_changed(QpState state) = 0;             // a new state is in force: tell the peer
  virtual void transmit() = 0;  // hand entries next()..tail() to the wire, finish what is finished
  virtual void advance() = 0;   // take what arrived, then transmit()
  // The short cut for one request with nothing in front of it: true if it was sent and has its place in the
  // queue.
  virtual bool send_at_once(const SendRequest&, bool /*signal_all*/, uint32_t /*reserved*/) { return false; }
  // The same for READs at the head of a batch that nobody wants to hear of: how many of them have been done.
  virtual size_t read_at_once(std::span<const SendRequest>) { return 0; }
  virtual void after_unlock() {}       // doorbells, outside the lock
  virtual void receive_posted() {}     // a receive came; called without the lock
  virtual void disconnect_wire() = 0;  // close(): without the lock, once

  bool is_closed() const { return is_closed_.load(); }
  bool may_transmit() const { return state() == QpState::rts; }
  // Checks the lkeys of an entry; false means LOC_PROT_ERR.
  bool local_is_valid(uint64_t index, bool for_writing) const;
  bool pieces_are_valid(std::span<const Sge> pieces, bool for_writing) const;
  // Reports finished entries from the head on; an entry with a bad status takes the QP to ERR.
  void reap();
  // The QP goes to ERR: entry head() completes with `first`, everything else is flushed.
  void fail(Status first);
  void enter_error();
  bool take_receive(PostedReceive& out);
  void complete_receive(const PostedReceive& receive, Status status, uint32_t bytes,
                        const uint32_t* immediate, bool solicited, WcOpcode opcode = WcOpcode::recv);
  SoftCompletionQueue& recv_cq() { return *recv_cq_; }
  uint32_t pd() const;
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
  PollerSink* sink_ = nullptr;  // under lock_: whose poll() is driving us
  ReceiveQueue own_receives_;
  SoftSharedReceiveQueue* const shared_receives_;  // or nullptr
  std::atomic<QpState> state_{QpState::reset};
  std::mutex modify_mutex_;
  std::once_flag closed_;
  std::atomic<bool> is_closed_{false};
};

}  // namespace verbena::soft
