#include "providers/ibv/shared_receive_queue.h"

#include <algorithm>
#include <cerrno>

#include "providers/ibv/requests.h"
#include "util/error.h"

namespace verbena::ibv {

IbvSharedReceiveQueue::IbvSharedReceiveQueue(std::shared_ptr<IbvDomain> domain, uint32_t max_recv,
                                             uint32_t max_sge)
    : domain_(std::move(domain)),
      use_(domain_->context()->use("create shared receive queue")),
      queue_(domain_->context()->next_queue()) {
  if (max_recv == 0)
    throw Error("invalid_argument", "create shared receive queue", "max_recv must be at least 1");
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = max_recv, .max_sge = max_sge, .srq_limit = 0};
  srq_ = library().create_srq(domain_->get(), &attr);
  if (!srq_) {
    throw Error("limit_exceeded", "create shared receive queue",
                "the device refused " + std::to_string(max_recv) + " receives of " + std::to_string(max_sge) +
                    " elements",
                errno);
  }
  max_sge_ = std::max(attr.attr.max_sge, max_sge);
  slots_ = std::make_unique<SlotPool>(std::max(attr.attr.max_wr, max_recv));
}

IbvSharedReceiveQueue::~IbvSharedReceiveQueue() {
  for (const auto& weak : cqs_)
    if (const auto cq = weak.lock()) cq->detach(queue_);
  if (srq_) library().destroy_srq(srq_);
}

void IbvSharedReceiveQueue::on_removal() {
  const std::lock_guard lock(post_lock_);
  closed_ = true;
  if (!srq_ || library().destroy_srq(srq_) != 0) return;
  srq_ = nullptr;
  use_.end();
}

void IbvSharedReceiveQueue::close() {
  const std::lock_guard lock(post_lock_);
  closed_ = true;
}

void IbvSharedReceiveQueue::report_to(const std::shared_ptr<IbvCompletionQueue>& cq) {
  const std::lock_guard lock(cqs_mutex_);
  std::erase_if(cqs_, [](const auto& weak) { return weak.expired(); });
  if (std::ranges::any_of(cqs_, [&](const auto& weak) { return weak.lock() == cq; })) return;
  cqs_.push_back(cq);
  cq->attach(queue_, *slots_);
}

PostResult IbvSharedReceiveQueue::post(std::span<const RecvRequest> batch) {
  const std::lock_guard lock(post_lock_);
  if (closed_) return {0, PostError::bad_state};
  PostResult result;
  while (result.accepted < batch.size() && result.error == PostError::none) {
    const auto rest = batch.subspan(result.accepted);
    const size_t posted = post_chunk(rest.first(std::min(rest.size(), kChunk)), result.error);
    result.accepted += posted;
    if (posted == 0) break;
  }
  return result;
}

size_t IbvSharedReceiveQueue::post_chunk(std::span<const RecvRequest> batch, PostError& error) {
  size_t count = 0;
  for (; count < batch.size(); ++count) {
    uint32_t index;
    if (batch[count].local.size() > max_sge_) {
      error = PostError::too_many_sges;
    } else if (!slots_->take(batch[count].id, index)) {
      error = PostError::full;
    } else {
      scratch_[count] = receive_of(batch[count], make_wr_id(queue_, index), &scratch_[count] + 1);
      continue;
    }
    break;
  }
  if (count == 0) return 0;
  scratch_[count - 1].next = nullptr;
  ibv_recv_wr* bad = nullptr;
  const int failure = ibv_post_srq_recv(srq_, scratch_.data(), &bad);
  if (failure == 0) return count;
  const size_t accepted = bad ? static_cast<size_t>(bad - scratch_.data()) : 0;
  for (size_t i = accepted; i < count; ++i) slots_->give_back(index_of(scratch_[i].wr_id));
  error = post_error(failure);
  return accepted;
}

}  // namespace verbena::ibv
