// Binds memory windows: memory lent to the peer of one queue pair.
#include "bind/bind.h"
#include "bind/unlocked.h"
#include "bind/verbs/memory.h"
#include "bind/verbs/queues.h"
#include "bind/verbs/remote.h"

namespace verbena::bind {
namespace {

struct MemoryWindowHandle {
  MemoryWindowHandle(std::shared_ptr<Context> parent, std::shared_ptr<MemoryWindow> bound,
                     const Region& region)
      : context(std::move(parent)),
        window(std::move(bound), "memory window"),
        addr(region.addr()),
        length(region.length()) {}
  ~MemoryWindowHandle() { invalidate(); }

  void invalidate() {
    if (!window.start_close()) return;
    const Unlocked unlocked;
    window.core()->invalidate();
    context->quiesce();
  }

  Owned<Context> context;
  Handle<MemoryWindow> window;
  const uint64_t addr, length;
};

MemoryWindowHandle* bind_window(DomainHandle& self, const Region& region, QueuePairHandle& qp,
                                uint32_t access) {
  constexpr const char* kOperation = "bind_window";
  ProtectionDomain& pd = self.pd.use(kOperation);
  const auto& memory = region.share(kOperation);
  const auto& queue_pair = qp.qp.share(kOperation);
  std::shared_ptr<MemoryWindow> window;
  {
    const Unlocked unlocked;
    window = pd.bind_window(memory, access, queue_pair);
  }
  return new MemoryWindowHandle(self.context.share(), std::move(window), region);
}

}  // namespace

void bind_windows(nb::module_& m) {
  m.def("bind_window", bind_window, nb::arg("pd"), nb::arg("region"), nb::arg("qp"), nb::arg("access"));
  nb::class_<MemoryWindowHandle>(m, "MemoryWindow")
      .def_prop_ro("rkey", [](const MemoryWindowHandle& self) { return self.window.use("rkey").rkey(); })
      .def_prop_ro("remote",
                   [](const MemoryWindowHandle& self) {
                     return RemoteMemory{self.addr, self.window.use("remote").rkey(), self.length};
                   })
      .def("invalidate", &MemoryWindowHandle::invalidate);
}

}  // namespace verbena::bind
