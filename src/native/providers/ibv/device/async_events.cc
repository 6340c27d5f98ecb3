#include "providers/ibv/device/async_events.h"

#include "providers/ibv/cm/connection.h"
#include "providers/ibv/completion_queue.h"
#include "providers/ibv/queue_pair.h"

namespace verbena::ibv {

void handle_async_event(ibv_async_event& event) {
  // An object cannot be destroyed until its event is acknowledged. So the object is held first, the event
  // acknowledged next, and handled last, since that may destroy the object.
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: {
      const auto broken = static_cast<IbvCompletionQueue*>(event.element.cq->cq_context)->on_overrun();
      library().ack_async_event(&event);
      for (const auto& qp : broken) qp->move_to_err();
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
