#include <array>

#include "providers/faulty/completion_queue.h"
#include "providers/faulty/queue_pair.h"

namespace verbena::faulty {

PostResult FaultyQueuePair::post_send(std::span<const SendRequest> batch) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (const PostError error = post_one(batch[i]); error != PostError::none) return {i, error};
  }
  return {batch.size(), PostError::none};
}

// What the inner wire would refuse at once. Needed because a request that is held back is accepted before the
// inner wire sees it.
PostError FaultyQueuePair::check(const SendRequest& request) const {
  const QpState state = inner_->state();
  if (state == QpState::reset || state == QpState::init || state == QpState::rtr) return PostError::bad_state;
  if (queue_.size() + *unpolled_ >= limits_.max_send) return PostError::full;
  if (request.local.size() > limits_.max_send_sge) return PostError::too_many_sges;
  if (request.flags & send_flag::inline_data) {
    uint64_t total = 0;
    for (const Sge& sge : request.local) total += sge.length;
    if (total > limits_.max_inline) return PostError::inline_too_long;
  }
  return PostError::none;
}

PostError FaultyQueuePair::post_one(const SendRequest& request) {
  if (const PostError error = check(request); error != PostError::none) return error;
  const bool none_delayed = issued_ == queue_.size();
  const auto fault = plan_->match(request.opcode);
  PostedRequest posted(request, signal_all_ || (request.flags & send_flag::signaled), first_ + queue_.size());
  if (fault) posted.apply(*fault, *pd_, plan_->now());
  queue_.push_back(std::move(posted));
  if (fault || !none_delayed) {
    advance_locked();
    send_cq_->announce();
    return PostError::none;
  }
  const PostError error = hand_over(queue_.back());
  if (error == PostError::none || error == PostError::full)
    return PostError::none;  // full: held until there is room
  queue_.pop_back();
  return error;
}

void FaultyQueuePair::advance() {
  const std::lock_guard lock(mutex_);
  if (!closed_) advance_locked();
}

void FaultyQueuePair::advance_locked() {
  reap();
  while (issued_ < queue_.size() && issue(queue_[issued_])) reap();
}

// Takes the inner wire's completions, then completes requests from the front as far as they are done.
void FaultyQueuePair::reap() {
  std::array<Completion, 16> batch;
  for (size_t count = batch.size(); count == batch.size();) {
    count = inner_sends_->poll(batch);
    for (const Completion& completion : std::span(batch).first(count)) {
      const uint64_t index = completion.id - first_;
      if (index >= queue_.size()) continue;  // posted before the last RESET
      PostedRequest& request = queue_[index];
      --request.awaited;
      // Of a duplicated request the first failure counts.
      if (request.result.status == Status::success) request.result = completion;
    }
  }
  while (issued_ > 0 && queue_.front().awaited == 0) {
    finish(queue_.front());
    queue_.pop_front();
    ++first_;
    --issued_;
  }
}

// Continues the oldest held request. False: it has to wait for time, for room or for earlier requests.
bool FaultyQueuePair::issue(PostedRequest& request) {
  const bool broken = inner_->state() == QpState::err;
  const uint64_t now = plan_->now();
  if (!broken && request.not_before_ns > now) {
    set_timer(request.not_before_ns - now);
    return false;
  }
  if (timer_set_) set_timer(0);
  if (!request.injected) {
    const PostError error = hand_over(request);
    if (error == PostError::none) return true;
    if (error == PostError::full) return false;
    // The caller knows it as accepted, so it fails by a completion.
    request.injected = error == PostError::message_too_long ? Status::loc_len_err : Status::loc_qp_op_err;
  }
  if (issued_ > 0) return false;
  request.result.status = broken ? Status::wr_flush_err : *request.injected;
  request.result.qp_num = number();
  ++issued_;
  if (request.breaks_link) break_link();
  enter_error();  // the inner wire flushes what follows when it gets it
  return true;
}

PostError FaultyQueuePair::hand_over(PostedRequest& request) {
  const SendRequest wire = request.for_wire();
  for (; request.copies > 0; --request.copies) {
    const PostResult posted = inner_->post_send({&wire, 1});
    if (posted.accepted == 0) return posted.error;
    ++request.awaited;
  }
  ++issued_;
  return PostError::none;
}

void FaultyQueuePair::finish(PostedRequest& request) {
  Completion& completion = request.result;
  const bool succeeded = completion.status == Status::success;
  if (succeeded && request.corrupt_landing) request.flip_landed_bit();
  completion.id = request.original.id;
  if (request.signaled || !succeeded) send_cq_->deliver(completion, unpolled_);
}

}  // namespace verbena::faulty
