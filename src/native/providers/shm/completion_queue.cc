#include "providers/shm/completion_queue.h"

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"

namespace verbena::shm {
namespace {

// Polls without a pause of milliseconds that make a spinner. Fewer would wake the progress thread for short
// waits.
constexpr uint32_t kSpinnerPolls = 1024;

}  // namespace

ShmCompletionQueue::ShmCompletionQueue(std::shared_ptr<ShmContext> context, uint32_t depth)
    : SoftCompletionQueue(depth), context_(std::move(context)) {
  context_->add_cq(*this);
}

ShmCompletionQueue::~ShmCompletionQueue() { context_->remove_cq(*this); }

size_t ShmCompletionQueue::poll(std::span<Completion> out) {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (!is_polled() && polls % kSpinnerPolls == 0) {
    polled_.store(true, std::memory_order_relaxed);
    set_bells(false);
    context_->wake();  // it now looks every few milliseconds whether we are still here
  }
  return SoftCompletionQueue::poll(out);
}

void ShmCompletionQueue::arm(bool solicited_only) {
  SoftCompletionQueue::arm(solicited_only);
  if (!is_polled()) return;
  polled_.store(false, std::memory_order_relaxed);
  set_bells(true);
}

void ShmCompletionQueue::check_pollers() {
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  if (polls == polls_seen_) polled_.store(false, std::memory_order_relaxed);
  polls_seen_ = polls;
}

void ShmCompletionQueue::set_bells(bool armed) {
  visit_members([armed](soft::Progressor& member) { static_cast<ShmQueuePair&>(member).set_bell(armed); });
}

}  // namespace verbena::shm
