// Python's handles on completion queues, shared receive queues and queue pairs. They are created and
// destroyed with the GIL.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include "bind/unlocked.h"
#include "bind/verbs/domain.h"
#include "bind/verbs/requests.h"
#include "verbs/router.h"

namespace verbena::bind {

struct CompletionQueueHandle {
  explicit CompletionQueueHandle(std::shared_ptr<CompletionQueue> queue)
      : cq(queue, "completion queue"), router(std::make_shared<CompletionRouter>(std::move(queue))) {}
  ~CompletionQueueHandle() { close(); }

  CompletionRouter& use(const char* operation) const {
    cq.use(operation);
    return *router;
  }
  void close() {
    if (!cq.start_close()) return;
    router->close();
    cq.core()->close();
  }

  Handle<CompletionQueue> cq;
  Owned<CompletionRouter> router;
};

struct SharedReceiveQueueHandle {
  SharedReceiveQueueHandle(std::shared_ptr<SharedReceiveQueue> queue, size_t depth)
      : srq(std::move(queue), "shared receive queue"), kept(2 * depth) {}
  ~SharedReceiveQueueHandle() { close(); }

  void close() {
    if (srq.start_close()) srq.core()->close();
    kept.clear();
  }

  Handle<SharedReceiveQueue> srq;
  RequestReferences kept;  // twice the depth: a receive leaves the queue before its message is complete
};

struct QueuePairHandle {
  QueuePairHandle(std::shared_ptr<QueuePair> queue_pair, const CompletionQueueHandle& send,
                  const CompletionQueueHandle& recv, const DomainHandle& domain)
      : qp(queue_pair, "queue pair"),
        number(queue_pair->number()),
        send_router(send.router),
        recv_router(recv.router),
        scratch(domain.scratch),
        send_references(queue_pair->limits().max_send),
        recv_references(queue_pair->limits().max_recv) {}
  ~QueuePairHandle() { close(); }

  // Closes the QP. Tracked operations that have not completed end with WR_FLUSH_ERR.
  void close() {
    if (!qp.start_close()) return;
    {
      const Unlocked unlocked;
      qp.core()->close();
      send_router->forget_qp(number);
      recv_router->forget_qp(number);
    }
    send_references.clear();
    recv_references.clear();
  }

  Handle<QueuePair> qp;
  uint32_t number;
  Owned<CompletionRouter> send_router, recv_router;
  Owned<ScratchWords> scratch;
  RequestReferences send_references, recv_references;
  std::string peer;  // for error messages
};

}  // namespace verbena::bind
