#include "providers/shm/completion_queue.h"

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"

namespace verbena::shm {
namespace {

// Fewer would wake the progress thread for short waits.
constexpr uint32_t kSpinnerPolls = 1024;

}  // namespace

ShmCompletionQueue::ShmCompletionQueue(std::shared_ptr<ShmContext> context, uint32_t depth)
    : SpunCompletionQueue(depth, kSpinnerPolls), context_(std::move(context)) {
  context_->add_cq(*this);
}

ShmCompletionQueue::~ShmCompletionQueue() { context_->remove_cq(*this); }

void ShmCompletionQueue::spinning_changed(bool is_polled) {
  visit_members(
      [is_polled](soft::Progressor& member) { static_cast<ShmQueuePair&>(member).set_bell(!is_polled); });
  if (is_polled) context_->wake();  // it now looks every few milliseconds whether we are still here
}

}  // namespace verbena::shm
