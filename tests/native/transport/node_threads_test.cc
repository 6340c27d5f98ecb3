// How a node's thread looks at its queues: how much at a time, and whether it ever sleeps.
#include <thread>

#include "check.h"
#include "providers/registry.h"
#include "stub_wire.h"
#include "transport/node/node.h"

using namespace verbena;
using namespace verbena::transport;

namespace {

std::shared_ptr<Port> port_with(std::shared_ptr<CompletionQueue> cq) {
  const auto context = find_provider("fake")->open("");
  const auto pd = context->alloc_pd();
  return std::make_shared<Port>(
      context, pd, std::move(cq), pd->create_srq(8, 1),
      PortOptions{.name = "stub", .buffer_bytes = 64, .pool_buffers = 8, .window = 4});
}

template <typename Condition>
void until(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

TEST("completions are taken poll_batch at a time") {
  Node node({.busy_poll_us = 10, .poll_batch = 7});
  const auto queue = std::make_shared<stub::Queue>();
  node.add_port(port_with(queue));
  until([&] { return queue->polls() > 0; });
  CHECK(queue->largest_batch() == 7);
}

TEST("an idle node arms all its queues and sleeps") {
  Node node({.busy_poll_us = 10});
  const auto first = std::make_shared<stub::Queue>(), second = std::make_shared<stub::Queue>();
  const auto port = node.add_port(port_with(first));
  node.add_queue(*port, second);
  until([&] { return first->armed() && second->armed(); });
}

TEST("a node that does not sleep never arms a queue") {
  Node node({.busy_poll_us = 0, .sleeps = false});
  const auto queue = std::make_shared<stub::Queue>();
  node.add_port(port_with(queue));
  until([&] { return queue->polls() > 20'000; });
  CHECK(!queue->armed());
}

}  // namespace

RUN_TESTS()
