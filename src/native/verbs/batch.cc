#include "verbs/batch.h"

#include <algorithm>
#include <array>

#include "util/clock.h"

namespace verbena {
namespace {

constexpr size_t kChunk = 64;              // requests per post, of which the last is signalled
constexpr uint64_t kSliceNs = 50'000'000;  // longest wait between two calls of keep_going
// Other users of the QP may fill the send queue; then no completion of this batch reports free room.
constexpr uint64_t kRetryNs = 1'000'000;

bool fits(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

size_t first_out_of_range(const BatchTarget& target, std::span<const BatchOperation> operations) {
  const auto bad = std::ranges::find_if_not(operations, [&](const BatchOperation& op) {
    return fits(op.local_offset, op.length_bytes, target.local_length) &&
           fits(op.remote_offset, op.length_bytes, target.remote_length) && op.length_bytes <= UINT32_MAX;
  });
  return static_cast<size_t>(bad - operations.begin());
}

class BatchRun {
 public:
  BatchRun(QueuePair& qp, CompletionRouter& router, Opcode opcode, const BatchTarget& target,
           std::span<const BatchOperation> operations, const std::function<bool()>& keep_going)
      : qp_(qp),
        router_(router),
        target_(target),
        operations_(operations),
        keep_going_(keep_going),
        id_(router.begin(qp.number(), true)) {
    const size_t depth = std::min(qp.limits().max_send, router.queue().capacity());
    window_ = std::max<size_t>(depth, 1);
    chunk_ = std::clamp<size_t>(window_ / 2, 1, kChunk);
    for (size_t i = 0; i < kChunk; ++i) {
      requests_[i].opcode = opcode;
      requests_[i].rkey = target.rkey;
      pieces_[i].lkey = target.lkey;
    }
  }

  BatchResult run(std::shared_ptr<void> keep) {
    if (id_ == 0) return {.end = BatchEnd::refused, .post_error = PostError::full};
    const BatchProgress& progress = router_.batch(id_);
    BatchResult result;
    while (posted_ < operations_.size() && result.end == BatchEnd::complete && !failed(progress)) {
      if (posted_ + chunk_ > reached(progress) + window_ && signaled_ > reached(progress)) {
        if (!wait_for(posted_ + chunk_ - window_)) result.end = BatchEnd::interrupted;
      } else {
        post_chunk(result);
      }
    }
    const bool drained =
        result.end != BatchEnd::interrupted && wait_for(signaled_) &&
        (!failed(progress) || wait_for(posted_));  // after a failure, unsignalled requests complete too
    if (!drained) result.end = BatchEnd::interrupted;
    result.completed = std::min(reached(progress), posted_);
    if (failed(progress)) {
      result.completed = progress.failed.load(std::memory_order_acquire);
      result.status = progress.first_error.status;
      if (drained) result.end = BatchEnd::failed;
    }
    router_.end_batch(id_, posted_, drained ? nullptr : std::move(keep));
    return result;
  }

 private:
  static bool failed(const BatchProgress& progress) {
    return progress.failed.load(std::memory_order_acquire) != kNever;
  }
  static uint64_t reached(const BatchProgress& progress) {
    return progress.reached.load(std::memory_order_acquire);
  }

  bool wait_for(uint64_t count) {
    while (!router_.wait_batch(id_, count, now_ns() + kSliceNs)) {
      if (!keep_going_()) return false;
    }
    return true;
  }

  void post_chunk(BatchResult& result) {
    const size_t count = std::min(chunk_, operations_.size() - posted_);
    for (size_t i = 0; i < count; ++i) {
      const BatchOperation& op = operations_[posted_ + i];
      pieces_[i].addr = target_.local_addr + op.local_offset;
      pieces_[i].length = static_cast<uint32_t>(op.length_bytes);
      SendRequest& request = requests_[i];
      request.id = CompletionRouter::nth(id_, posted_ + i);
      request.flags = i + 1 == count ? send_flag::signaled : 0;
      request.remote_addr = target_.remote_addr + op.remote_offset;
      request.local = {&pieces_[i], op.length_bytes > 0 ? 1u : 0u};
    }
    const PostResult post = qp_.post_send(std::span(requests_).first(count));
    posted_ += post.accepted;
    if (post.accepted == count) {
      signaled_ = posted_;
    } else if (post.error != PostError::full) {
      result.end = BatchEnd::refused;
      result.post_error = post.error;
      if (posted_ > signaled_) post_marker();
    } else if (!router_.wait_batch(id_, reached(router_.batch(id_)) + 1, now_ns() + kRetryNs) &&
               !keep_going_()) {
      result.end = BatchEnd::interrupted;
    }
  }

  // Posts an empty signalled request with the id of the last accepted request, which was not signalled. The
  // send queue completes in order, so this completion confirms that request.
  void post_marker() {
    SendRequest marker = requests_[0];
    marker.id = CompletionRouter::nth(id_, posted_ - 1);
    marker.flags = send_flag::signaled;
    marker.local = {};
    if (qp_.post_send({&marker, 1}).accepted == 1) signaled_ = posted_;
  }

  QueuePair& qp_;
  CompletionRouter& router_;
  const BatchTarget& target_;
  const std::span<const BatchOperation> operations_;
  const std::function<bool()>& keep_going_;
  const uint64_t id_;
  size_t window_ = 0, chunk_ = 0;
  uint64_t posted_ = 0, signaled_ = 0;
  std::array<SendRequest, kChunk> requests_;
  std::array<Sge, kChunk> pieces_;
};

}  // namespace

BatchResult run_batch(QueuePair& qp, CompletionRouter& router, Opcode opcode, const BatchTarget& target,
                      std::span<const BatchOperation> operations, const std::function<bool()>& keep_going,
                      std::shared_ptr<void> keep) {
  const size_t bad = first_out_of_range(target, operations);
  if (bad < operations.size()) return {.end = BatchEnd::out_of_range, .completed = bad};
  if (operations.empty()) return {};
  return BatchRun(qp, router, opcode, target, operations, keep_going).run(std::move(keep));
}

}  // namespace verbena
