#include "providers/iwarp/completion_queue.h"

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"

namespace verbena::iwarp {
namespace {

// Each poll is a system call per queue pair, so fewer than in shared memory.
constexpr uint32_t kSpinnerPolls = 128;

}  // namespace

IwarpCompletionQueue::IwarpCompletionQueue(std::shared_ptr<IwarpContext> context, uint32_t depth)
    : SpunCompletionQueue(depth, kSpinnerPolls), context_(std::move(context)) {
  context_->add_cq(*this);
}

IwarpCompletionQueue::~IwarpCompletionQueue() { context_->remove_cq(*this); }

void IwarpCompletionQueue::spinning_changed(bool is_polled) {
  visit_members([](soft::Progressor& member) { static_cast<IwarpQueuePair&>(member).update_watch(); });
  if (is_polled) context_->wake();  // it now looks every few milliseconds whether we are still here
}

}  // namespace verbena::iwarp
