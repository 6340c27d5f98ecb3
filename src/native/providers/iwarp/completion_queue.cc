#include "providers/iwarp/completion_queue.h"

#include "providers/iwarp/queue_pair.h"

namespace verbena::iwarp {

void IwarpCompletionQueue::polling_changed(bool) {
  visit_members([](soft::Progressor& member) { static_cast<IwarpQueuePair&>(member).update_watch(); });
}

}  // namespace verbena::iwarp
