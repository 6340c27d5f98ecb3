#include <algorithm>

#include "bind/bind.h"
#include "bind/verbs/queues.h"
#include "bind/verbs/waiting.h"

namespace verbena::bind {
namespace {

constexpr size_t kMaxPolled = 256;

using Completions = nb::typed<nb::list, Completion>;

Completions to_list(std::span<const Completion> completions) {
  Completions list;
  for (const Completion& completion : completions) list.append(nb::cast(completion));
  return list;
}

Completions poll(CompletionQueueHandle& self, size_t max) {
  CompletionRouter& router = self.use("poll");
  drop_references(router);
  Completion found[kMaxPolled];
  return to_list({found, router.poll_raw({found, std::min(max, kMaxPolled)})});
}

Completions wait(CompletionQueueHandle& self, size_t max, double timeout_s, uint32_t spin_us) {
  CompletionRouter& router = self.use("wait");
  drop_references(router);
  Completion found[kMaxPolled];
  size_t count = 0;
  wait_with_signals(deadline_after(timeout_s), [&](uint64_t until_ns) {
    count = router.wait_raw({found, std::min(max, kMaxPolled)}, until_ns, spin_us);
    return count > 0 || self.cq.is_closed();
  });
  if (count == 0) self.use("wait");
  return to_list({found, count});
}

Completions drain(CompletionQueueHandle& self) {
  CompletionRouter& router = self.use("wait");
  drop_references(router);
  std::vector<Completion> finished;
  router.drain_watched(finished);
  return to_list(finished);
}

nb::object watch(CompletionQueueHandle& self, uint64_t token) {
  Completion done;
  if (!self.router->watch(token, done)) return nb::none();
  return nb::cast(done);
}

}  // namespace

void bind_completion_queue(nb::module_& m) {
  nb::class_<CompletionQueue>(m, "CompletionQueueCore", "The provider's own queue, for native loops.");
  nb::class_<CompletionQueueHandle>(m, "CompletionQueue")
      .def("poll", poll, nb::arg("max"))
      .def("wait", wait, nb::arg("max"), nb::arg("timeout_s"), nb::arg("spin_us"),
           "Blocks for raw completions; an empty list when the time is up. A negative time-out waits for "
           "ever.")
      .def(
          "arm",
          [](CompletionQueueHandle& self, bool solicited_only) { self.use("arm").arm(solicited_only); },
          nb::arg("solicited_only"))
      .def("acknowledge", [](CompletionQueueHandle& self) { self.use("acknowledge").acknowledge(); })
      .def("fileno", [](const CompletionQueueHandle& self) { return self.cq.use("fileno").fileno(); })
      .def_prop_ro("capacity", [](const CompletionQueueHandle& self) { return self.cq.core()->capacity(); })
      .def_prop_ro("overrun", [](const CompletionQueueHandle& self) { return self.cq.core()->overrun(); })
      .def_prop_ro(
          "tracked", [](const CompletionQueueHandle& self) { return self.router->tracked(); },
          "Operations in flight that are waited for by id.")
      .def_prop_ro(
          "core", [](const CompletionQueueHandle& self) -> CompletionQueue& { return *self.cq.core(); },
          nb::rv_policy::reference_internal)
      .def("close", &CompletionQueueHandle::close)
      // The rest is for an event loop: see verbs/events.py.
      .def(
          "wakeup_fileno", [](const CompletionQueueHandle& self) { return self.use("wait").wakeup_fileno(); },
          "A second descriptor for event loops, readable when another thread took the queue's event.")
      .def("watch", watch, nb::arg("token"), nb::sig("def watch(self, token: int) -> WorkCompletion | None"),
           "Hands an operation to drain(), or returns it if it has finished.")
      .def("expect_event", [](CompletionQueueHandle& self) { self.use("wait").expect_event(); })
      .def("drain", drain, "Takes the event and returns the watched operations that have finished.")
      .def(
          "abandon",
          [](CompletionQueueHandle& self, uint64_t token, const nb::object& keep) {
            self.router->abandon(token, keep_object(keep));
          },
          nb::arg("token"), nb::arg("keep"), "Gives up waiting; `keep` lives until the operation has ended.");
}

}  // namespace verbena::bind
