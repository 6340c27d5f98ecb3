#include "providers/shm/completion_queue.h"

#include "providers/shm/queue_pair.h"

namespace verbena::shm {

void ShmCompletionQueue::polling_changed(bool is_polled) {
  visit_members(
      [is_polled](soft::Progressor& member) { static_cast<ShmQueuePair&>(member).set_doorbell(!is_polled); });
}

}  // namespace verbena::shm
