// Binds providers and contexts, which create all other objects of the verbs.
#include "bind/verbs/providers.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "bind/unlocked.h"
#include "bind/verbs/connections.h"
#include "bind/verbs/queues.h"
#include "providers/ibv/options.h"
#include "providers/registry.h"
#include "util/processor/numa.h"
#include "verbs/port_sharing.h"

namespace verbena::bind {
namespace {

ContextHandle* open(ProviderHandle& self, const std::string& device) {
  std::shared_ptr<Context> context;
  {
    const Unlocked unlocked;
    context = self.provider->open(device);
  }
  return new ContextHandle(std::move(context));
}

ListenerHandle* listen(ContextHandle& self, const std::string& address, int backlog) {
  Context& context = self.context.use("listen");
  std::shared_ptr<Listener> listener;
  {
    const Unlocked unlocked;
    listener = context.listen(address, backlog);
  }
  return new ListenerHandle(std::move(listener));
}

nb::object listen_to_sockets(ContextHandle& self, int backlog) {
  auto* sharing = dynamic_cast<PortSharing*>(&self.context.use("listen"));
  std::shared_ptr<Listener> listener;
  if (sharing) {
    const Unlocked unlocked;
    listener = sharing->listen_to_sockets(backlog);
  }
  if (!listener) return nb::none();
  return nb::cast(new ListenerHandle(std::move(listener)), nb::rv_policy::take_ownership);
}

void close_own_port(ContextHandle& self) {
  auto* sharing = dynamic_cast<PortSharing*>(&self.context.use("close port"));
  const Unlocked unlocked;
  if (sharing) sharing->close_own_port();
}

ConnectionHandle* connect(ContextHandle& self, QueuePairHandle& qp, const std::string& address,
                          const ConnectParams& params) {
  Context& context = self.context.use("connect");
  const auto& queue_pair = qp.qp.share("connect");
  std::shared_ptr<Connection> connection;
  {
    const Unlocked unlocked;
    connection = context.connect(queue_pair, address, params);
  }
  return new ConnectionHandle(std::move(connection));
}

}  // namespace

void bind_providers(nb::module_& m) {
  nb::class_<ContextHandle>(m, "Context")
      .def("query", [](const ContextHandle& self) { return self.context.use("query").query(); })
      .def("counts",
           [](const ContextHandle& self) {
             const Counts counts = self.context.use("count").counts();
             return std::map<std::string, uint64_t>(counts.begin(), counts.end());
           })
      .def_prop_ro("removed", [](const ContextHandle& self) { return self.context.core()->is_removed(); })
      .def("alloc_pd",
           [](ContextHandle& self) {
             Context& context = self.context.use("alloc_pd");
             return new DomainHandle(self.context.core(), context.alloc_pd());
           })
      .def(
          "create_cq",
          [](ContextHandle& self, uint32_t depth) {
            return new CompletionQueueHandle(self.context.use("create_cq").create_cq(depth));
          },
          nb::arg("depth"))
      .def(
          "set_memory_node",
          [](ContextHandle& self, int node) {
            Context& context = self.context.use("set_memory_node");
            const std::string reason = node < 0 ? std::string() : can_prefer_node(node);
            if (reason.empty()) context.set_memory_node(node);
            return reason;
          },
          nb::arg("node"))
      .def("listen", listen, nb::arg("address"), nb::arg("backlog"))
      .def("listen_to_sockets", listen_to_sockets, nb::arg("backlog"),
           nb::sig("def listen_to_sockets(self, backlog: int) -> Listener | None"))
      .def("close_own_port", close_own_port)
      .def("connect", connect, nb::arg("qp"), nb::arg("address"), nb::arg("params"))
      .def("close", &ContextHandle::close);

  nb::class_<ProviderHandle>(m, "Provider")
      .def_prop_ro("name", [](const ProviderHandle& self) { return self.provider->name(); })
      .def_prop_ro("unavailable_reason",
                   [](const ProviderHandle& self) { return self.provider->unavailable_reason(); })
      .def_prop_ro("unavailable_code",
                   [](const ProviderHandle& self) { return self.provider->unavailable_code().str(); })
      .def("devices",
           [](const ProviderHandle& self) {
             const Unlocked unlocked;
             return self.provider->devices();
           })
      .def("open", open, nb::arg("device"));
  m.def("provider_names", provider_names);
  m.def(
      "open_ibv",
      [](const std::string& device, int port, int gid_index) {
        std::shared_ptr<Context> context;
        {
          const Unlocked unlocked;
          context = ibv::open(device, {port, gid_index});
        }
        return new ContextHandle(std::move(context));
      },
      nb::arg("device"), nb::kw_only(), nb::arg("port"), nb::arg("gid_index"),
      "Port 0 is any, GID index -1 the best.");
  m.def(
      "find_provider", [](const std::string& name) { return new ProviderHandle{Owned(find_provider(name))}; },
      nb::arg("name"));
}

}  // namespace verbena::bind
