// A queue pair over one TCP connection or QUIC stream. Set-up in queue_pair.cc, sending in
// queue_pair_send.cc, the callbacks of the stream in queue_pair_receive.cc, timers in queue_pair_timers.cc.
// Everything below the public part runs under the base class's lock.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "providers/iwarp/channel.h"
#include "providers/iwarp/completion_queue.h"
#include "providers/soft/queue_pair.h"

namespace verbena::iwarp {

class IwarpContext;

class IwarpQueuePair final : public soft::SoftQueuePair, private StreamHost {
 public:
  enum class Admission : uint8_t { now, later, never };

  IwarpQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options, uint32_t number,
                 IwarpContext& context);
  ~IwarpQueuePair() override { close(); }
  Capabilities capabilities() const override;

  // Whether a peer with this GID and queue pair number may connect to this QP: now, perhaps later, or never.
  Admission admits(const Gid& gid, uint32_t peer_qp) const;
  // Takes over a socket whose MPA set-up is complete, and sends `reply` first. False when the QP has a
  // connection already or is in the wrong state.
  bool adopt(net::StreamSocket socket, const Agreement& agreement, uint32_t own_ird,
             const std::vector<uint8_t>& reply);
  ErrorCode end_code() const { return end_code_.load(std::memory_order_relaxed); }  // why it ended, if known
  uint32_t generation() const {
    return generation_.load(std::memory_order_relaxed);
  }  // counts the peers of this QP
  void peer_unreachable();  // requests fail from now on
  void update_watch();      // to be called when another thread begins or stops to read the socket

  // For the progress thread.
  void drive_readable();
  int check_timers(uint64_t now);  // returns the milliseconds until the next call

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  void connect_wire(const QpAttributes&) override {}
  void wire_state_changed(QpState state) override;
  void disconnect_wire() override;
  void transmit() override;
  void advance() override;
  void after_unlock() override;
  void receive_posted() override;

  bool is_fresh() const;  // accepted, and nothing was received since
  bool is_polled() const { return send_cq_.is_polled() || recv_cq_.is_polled(); }
  void allow_extensions(bool allowed);
  // Whether a polling thread should read the socket. A thread that has armed a queue polls once more before
  // it sleeps; in the middle of a stream, reading is then left to the progress thread.
  bool may_poller_read() const {
    return is_polled() || !(send_cq_.is_crowded() || recv_cq_.is_crowded() || send_cq_.is_armed());
  }
  void watch();
  void resume_watch();
  void reset_connection_state();
  void close_channel();    // closes the connection gracefully
  void lose_connection();  // the peer is gone
  void drop_partial_receive();

  // queue_pair_send.cc
  void pump();
  void read_after_send();
  bool is_long_request() const;
  bool fill();
  bool compose_request(OutSegment& out);
  void compose_message(OutSegment& out, soft::SendEntry& entry);
  void compose_write(OutSegment& out, soft::SendEntry& entry);
  void compose_read_or_atomic(OutSegment& out, soft::SendEntry& entry);
  void fill_payload(OutSegment& out, uint64_t offset, size_t length);
  bool is_paused();  // a foreign peer gets time before our first message
  bool may_start(const soft::SendEntry& entry);
  Status check_entry(uint64_t index) const;
  void finish(uint64_t index, Status status);
  void fail_unreachable();
  void advance_send_queue();
  // The number of the last message of a request that was sent.
  uint64_t& number_of(uint64_t index) { return numbers_[index & (numbers_.size() - 1)]; }
  bool is_halted() const { return halted_at_ != kNever; }
  bool is_source_valid(const OutSegment& segment) const;
  void end_fault();

  // queue_pair_receive.cc
  bool receive();
  void tune_wakeups();
  void take_posted_receive();
  Refusal place_message(uint64_t offset, uint32_t length, Placement& out) override;
  Refusal place_write(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override;
  Refusal place_response(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override;
  Refusal message_arrived(uint64_t length, bool solicited, const uint32_t* immediate) override;
  Refusal immediate_arrived(uint32_t immediate, uint64_t written, bool solicited) override;
  Refusal response_arrived(uint32_t length, bool last) override;
  Refusal atomic_answered(uint32_t id, uint64_t original) override;
  Refusal read_requested(const ReadRequest& request) override;
  Refusal execute_atomic(const AtomicRequest& request, uint64_t& original) override;
  const std::byte* source(uint32_t stag, uint64_t offset, uint32_t length) override;
  void acknowledged(uint64_t executed) override;
  void peer_not_ready(uint64_t executed, uint8_t rnr_timer) override;
  void peer_ready() override;
  void request_failed(uint64_t request, Status status) override;
  void terminated(const Termination& termination) override;
  Refusal check(uint32_t stag, uint64_t offset, uint64_t length, uint32_t needed, bool tagged) const;

  IwarpContext& iwarp_;
  IwarpCompletionQueue& send_cq_;
  IwarpCompletionQueue& recv_cq_;

  std::unique_ptr<Channel> channel_;
  std::atomic<uint32_t> generation_{0};
  bool unreachable_ = false;
  bool in_stream_ = false;  // a callback of the stream is running: the channel must outlive it
  bool must_close_channel_ = false;
  uint32_t watched_ = 0;           // epoll events that are watched
  std::atomic<bool> lost_{false};  // to be reported to the context
  std::atomic<ErrorCode> end_code_{};
  std::atomic<bool> readable_{false};  // set by the progress thread

  // Sending. Entries head..emit_ were sent in part or whole.
  uint64_t emit_ = 0;
  uint64_t settled_ = 0;
  std::vector<uint64_t> numbers_;
  uint64_t halted_at_ = kNever;   // the entry that failed: nothing behind it starts
  std::deque<uint64_t> pending_;  // READs and atomics without a response
  bool output_is_stale_ = false;  // the batch was checked under an earlier hold of the lock
  bool defer_ack_ = false;
  std::atomic<bool> reads_after_send_{
      false};  // the thread that holds the lock also reads: do not wake the progress thread
  uint64_t pause_until_ns_ = 0;

  // Receiving.
  int wake_bytes_ = 1;  // SO_RCVLOWAT
  soft::PostedReceive receive_;
  bool has_receive_ = false;
  Status receive_status_ = Status::wr_flush_err;  // of receive_ if the QP fails
  std::atomic<bool> stalled_{false};              // the peer waits for a receive
  Status termination_ = Status::success;
  bool termination_is_known_ = false;

  // Timers.
  bool peer_not_ready_ = false;
  uint64_t rnr_deadline_ns_ = kNever;
  size_t unconfirmed_mark_ = 0;
  uint64_t timer_mark_ = 0, timer_since_ns_ = 0, fault_since_ns_ = 0;
};

}  // namespace verbena::iwarp
