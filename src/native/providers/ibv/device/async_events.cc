#include "providers/ibv/device/async_events.h"

#include "providers/ibv/cm/connection.h"
#include "providers/ibv/completion_queue.h"
#include "providers/ibv/queue_pair.h"

namespace verbena::ibv {

void handle_async_event(ibv_async_event& event) {
  // Until the event is acknowledged its object cannot be destroyed, so what it leads to is held before that;
  // acting comes after, since it may destroy.
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: {
      const auto broken = static_cast<IbvCompletionQueue*>(event.element.cq->cq_context)->on_overrun();
      library().ack_async_event(&event);
      for (const auto& qp : broken) qp->break_down();
      return;
    }
    case IBV_EVENT_COMM_EST: {
      const auto connection = static_cast<IbvQueuePair*>(event.element.qp->qp_context)->connection();
      library().ack_async_event(&event);
      if (connection) connection->on_first_message();
      return;
    }
    default:
      library().ack_async_event(&event);
  }
}

}  // namespace verbena::ibv
