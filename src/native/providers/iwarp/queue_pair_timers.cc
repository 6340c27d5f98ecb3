// The timers of a queue pair. TCP retransmits; the queue pair only decides when to give up.
#include <algorithm>

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"

namespace verbena::iwarp {
namespace {

// The progress thread shares its core with other threads: shorter retry limits would give false alarms.
constexpr uint64_t kMinRetryLimitNs = 2'000'000'000;
// For a peer that does not read our TERMINATE.
constexpr uint64_t kFaultTimeoutNs = 2'000'000'000;
constexpr int kStallCheckMs = 1, kPauseCheckMs = 10, kRetryCheckMs = 100;

}  // namespace

int IwarpQueuePair::check_timers(uint64_t now) {
  int next_ms = kRetryCheckMs;
  {
    const std::lock_guard lock(lock_);
    resume_watch();
    if (stalled_.load(std::memory_order_relaxed) || pause_until_ns_ != 0) {
      advance();
      next_ms = stalled_.load(std::memory_order_relaxed) ? kStallCheckMs : kPauseCheckMs;
    }
    if (peer_not_ready_ && !is_halted()) {
      if (now >= rnr_deadline_ns_) {
        finish(emit_, Status::rnr_retry_exc_err);
        advance_send_queue();
        reap();
      } else if (rnr_deadline_ns_ != kNever) {
        next_ms = kStallCheckMs;
      }
    }
    const bool responds = soft::can_respond(state());
    if (channel_ && responds && channel_->stream().fault() && now - fault_since_ns_ >= kFaultTimeoutNs)
      end_fault();
    const uint64_t timeout_ns = uint64_t{iwarp_.options().stall_timeout_ms} * 1'000'000;
    if (channel_ && responds && channel_->is_stalled(now, timeout_ns)) {
      advance();  // perhaps this thread was late, not the peer
      if (channel_ && channel_->is_stalled(now, timeout_ns)) lose_connection();
    }

    const uint64_t limit = soft::retry_limit_ns(attributes_.timeout, attributes_.retry_count);
    const uint64_t mark = send_queue_.head() + (channel_ ? channel_->bytes_moved() : 0);
    // A responder waits for the initiator's first message without a limit.
    const bool may_send = !channel_ || channel_->stream().may_send();
    const bool waiting =
        send_queue_.head() != send_queue_.tail() && state() == QpState::rts && limit != 0 && may_send;
    // Bytes in the send buffer may take long: a slow path is not a dead peer.
    const size_t unconfirmed = waiting && channel_ ? channel_->stream_socket().unconfirmed() : 0;
    const bool has_moved = mark != timer_mark_ || unconfirmed != unconfirmed_mark_;
    if (!waiting || peer_not_ready_ || has_moved || timer_since_ns_ == 0) {
      timer_mark_ = mark;
      unconfirmed_mark_ = unconfirmed;
      timer_since_ns_ = now;
    } else if (now - timer_since_ns_ >= std::max(limit, kMinRetryLimitNs)) {
      fail(Status::retry_exc_err);
    }
  }
  after_unlock();
  return next_ms;
}

}  // namespace verbena::iwarp
