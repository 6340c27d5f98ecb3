#include "providers/iwarp/completion_queue.h"

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"

namespace verbena::iwarp {
namespace {

// Polls in a row that make a spinner. Each is a system call per queue pair, so fewer than in shared memory.
constexpr uint32_t kSpinnerPolls = 128;

}  // namespace

IwarpCompletionQueue::IwarpCompletionQueue(std::shared_ptr<IwarpContext> context, uint32_t depth)
    : SoftCompletionQueue(depth), context_(std::move(context)) {
  context_->add_cq(*this);
}

IwarpCompletionQueue::~IwarpCompletionQueue() { context_->remove_cq(*this); }

size_t IwarpCompletionQueue::poll(std::span<Completion> out) {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (!is_polled() && polls % kSpinnerPolls == 0 && !is_crowded()) {
    polled_.store(true, std::memory_order_relaxed);
    watch_members();
    context_->wake();  // it now looks every few milliseconds whether we are still here
  }
  return SoftCompletionQueue::poll(out);
}

void IwarpCompletionQueue::arm(bool solicited_only) {
  SoftCompletionQueue::arm(solicited_only);
  if (!is_polled()) return;
  polled_.store(false, std::memory_order_relaxed);
  watch_members();
}

void IwarpCompletionQueue::check_pollers() {
  const uint32_t polls = polls_.load(std::memory_order_relaxed);
  if (polls == polls_seen_) polled_.store(false, std::memory_order_relaxed);
  polls_seen_ = polls;
}

void IwarpCompletionQueue::watch_members() {
  visit_members([](soft::Progressor& member) { static_cast<IwarpQueuePair&>(member).update_watch(); });
}

}  // namespace verbena::iwarp
