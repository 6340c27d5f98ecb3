#include <algorithm>

#include "providers/ibv/queue_pair.h"
#include "providers/ibv/requests.h"
#include "providers/soft/qp_states.h"

namespace verbena::ibv {
namespace {

uint64_t total_length(std::span<const Sge> local) {
  uint64_t length = 0;
  for (const Sge& piece : local) length += piece.length;
  return length;
}

}  // namespace

PostError IbvQueuePair::refuse(const SendRequest& request) const {
  if (request.opcode > (context().has_atomics() ? Opcode::fetch_add : Opcode::read))
    return PostError::unsupported_opcode;
  if (request.local.size() > limits_.max_send_sge) return PostError::too_many_sges;
  const uint64_t length = total_length(request.local);
  if (length > context().limits().max_message_bytes) return PostError::message_too_long;
  if ((request.flags & send_flag::inline_data) &&
      (length > limits_.max_inline || request.opcode >= Opcode::read))
    return PostError::inline_too_long;
  return PostError::none;
}

PostResult IbvQueuePair::post_send(std::span<const SendRequest> batch) {
  const std::lock_guard lock(send_lock_);
  if (!soft::accepts_sends(state_.load(std::memory_order_acquire))) return {0, PostError::bad_state};
  PostResult result;
  while (result.accepted < batch.size() && result.error == PostError::none) {
    const auto rest = batch.subspan(result.accepted);
    const size_t posted = post_sends(rest.first(std::min(rest.size(), kChunk)), result.error);
    result.accepted += posted;
    if (posted == 0) break;
  }
  return result;
}

size_t IbvQueuePair::post_sends(std::span<const SendRequest> batch, PostError& error) {
  const uint32_t room = sends_->room();
  uint32_t count = 0;
  for (; count < batch.size(); ++count) {
    const SendRequest& request = batch[count];
    error = refuse(request);
    if (error == PostError::none && count == room) error = PostError::full;
    if (error != PostError::none) break;
    const uint32_t index = sends_->stage(count, {.id = request.id,
                                                 .length = static_cast<uint32_t>(total_length(request.local)),
                                                 .opcode = completed_opcode(request.opcode)});
    send_scratch_[count] = send_of(request, make_wr_id(send_queue_, index), &send_scratch_[count] + 1);
  }
  if (count == 0) return 0;
  send_scratch_[count - 1].next = nullptr;
  sends_->commit(count);
  ibv_send_wr* bad = nullptr;
  const int failure = ibv_post_send(qp_, send_scratch_.data(), &bad);
  if (failure == 0) return count;
  const auto accepted = static_cast<uint32_t>(bad ? bad - send_scratch_.data() : 0);
  sends_->take_back(count - accepted);
  error = post_error(failure);
  return accepted;
}

// After SQD, Soft-RoCE does not process its send queue until something is posted. Its library refuses an
// atomic without memory and queues nothing, but the attempt makes the kernel process the queue.
void IbvQueuePair::resume_sends() {
  if (!context().is_soft_roce()) return;
  ibv_send_wr refused{};
  refused.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  ibv_send_wr* bad = nullptr;
  ibv_post_send(qp_, &refused, &bad);
}

PostResult IbvQueuePair::post_recv(std::span<const RecvRequest> batch) {
  PostResult result;
  bool broken = false;
  {
    const std::lock_guard lock(recv_lock_);
    const QpState state = state_.load(std::memory_order_acquire);
    if (srq_ || !soft::accepts_receives(state)) return {0, PostError::bad_state};
    while (result.accepted < batch.size() && result.error == PostError::none) {
      const auto rest = batch.subspan(result.accepted);
      const size_t posted = post_receives(rest.first(std::min(rest.size(), kChunk)), result.error);
      result.accepted += posted;
      if (posted == 0) break;
    }
    broken = state == QpState::err || receives_->failed() || sends_->failed();
  }
  // A device in ERR may ignore its receive queue (Soft-RoCE does): moving it to ERR again flushes it.
  if (broken) move_to_err();
  return result;
}

size_t IbvQueuePair::post_receives(std::span<const RecvRequest> batch, PostError& error) {
  const uint32_t room = receives_->room();
  uint32_t count = 0;
  for (; count < batch.size(); ++count) {
    if (batch[count].local.size() > limits_.max_recv_sge) {
      error = PostError::too_many_sges;
    } else if (count == room) {
      error = PostError::full;
    }
    if (error != PostError::none) break;
    const uint32_t index = receives_->stage(count, {.id = batch[count].id});
    recv_scratch_[count] =
        receive_of(batch[count], make_wr_id(recv_queue_, index), &recv_scratch_[count] + 1);
  }
  if (count == 0) return 0;
  recv_scratch_[count - 1].next = nullptr;
  receives_->commit(count);
  ibv_recv_wr* bad = nullptr;
  const int failure = ibv_post_recv(qp_, recv_scratch_.data(), &bad);
  if (failure == 0) return count;
  const auto accepted = static_cast<uint32_t>(bad ? bad - recv_scratch_.data() : 0);
  receives_->take_back(count - accepted);
  error = post_error(failure);
  return accepted;
}

}  // namespace verbena::ibv
