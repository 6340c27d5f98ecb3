// What a queue pair does because time has passed: retries are TCP's business, giving up is ours.
#include <algorithm>

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"

namespace verbena::iwarp {
namespace {

// A progress thread shares its core with everything else: shorter retry limits than this would cry wolf.
constexpr uint64_t kMinRetryLimitNs = 2'000'000'000;
// A peer that does not even take our last words does not get them.
constexpr uint64_t kFaultPatienceNs = 2'000'000'000;
constexpr int kStallCheckMs = 1, kPauseCheckMs = 10, kRetryCheckMs = 100;

}  // namespace

int IwarpQueuePair::check_timers(uint64_t now) {
  int next_ms = kRetryCheckMs;
  {
    const std::lock_guard lock(lock_);
    take_over();
    if (stalled_.load(std::memory_order_relaxed) || quiet_until_ns_ != 0) {
      advance();
      next_ms = stalled_.load(std::memory_order_relaxed) ? kStallCheckMs : kPauseCheckMs;
    }
    if (peer_not_ready_ && !is_halted()) {
      if (now >= rnr_deadline_ns_) {
        finish(emit_, Status::rnr_retry_exc_err);
        hand_over();
        reap();
      } else if (rnr_deadline_ns_ != kNever) {
        next_ms = kStallCheckMs;
      }
    }
    const bool responds = soft::can_respond(state());
    if (channel_ && responds && channel_->stream().fault() && now - fault_since_ns_ >= kFaultPatienceNs)
      end_fault();
    const uint64_t patience_ns = uint64_t{iwarp_.options().stall_timeout_ms} * 1'000'000;
    if (channel_ && responds && channel_->is_stalled(now, patience_ns)) {
      advance();  // it may be we who were late
      if (channel_ && channel_->is_stalled(now, patience_ns)) lose_wire();
    }

    const uint64_t limit = soft::retry_limit_ns(attributes_.timeout, attributes_.retry_count);
    const uint64_t mark = send_queue_.head() + (channel_ ? channel_->bytes_moved() : 0);
    // Who was called waits for the caller's first word for as long as that takes.
    const bool may_speak = !channel_ || channel_->stream().may_send();
    const bool waiting =
        send_queue_.head() != send_queue_.tail() && state() == QpState::rts && limit != 0 && may_speak;
    // What the wire has taken may be long on its way: a slow path is not an absent peer.
    const size_t unconfirmed = waiting && channel_ ? channel_->wire().unconfirmed() : 0;
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
