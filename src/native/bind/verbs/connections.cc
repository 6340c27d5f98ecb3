// Binds the connection manager: listeners, connect requests, connections. Python waits on their descriptors.
#include "bind/verbs/connections.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "bind/unlocked.h"
#include "bind/verbs/queues.h"
#include "verbs/port_sharing.h"

namespace verbena::bind {
namespace {

nb::bytes to_bytes(const std::vector<uint8_t>& data) { return nb::bytes(data.data(), data.size()); }

std::vector<uint8_t> from_bytes(const nb::bytes& data) {
  const auto* begin = reinterpret_cast<const uint8_t*>(data.c_str());
  return {begin, begin + data.size()};
}

nb::object next(ListenerHandle& self) {
  std::shared_ptr<ConnectRequest> request = self.listener.use("accept").next();
  if (!request) return nb::none();
  return nb::cast(new RequestHandle(std::move(request)), nb::rv_policy::take_ownership);
}

// Owns the descriptor from here on. Closes it if this listener takes no sockets.
void take_over(ListenerHandle& self, int socket, uint32_t timeout_ms) {
  UniqueFd owned(socket);
  auto* listener = dynamic_cast<SocketListener*>(&self.listener.use("accept"));
  const Unlocked unlocked;
  if (listener) listener->take_over(std::move(owned), timeout_ms);
}

ConnectionHandle* accept(RequestHandle& self, QueuePairHandle& qp, const ConnectParams& params) {
  const auto& queue_pair = qp.qp.share("accept");
  ConnectRequest& request = self.request.use("accept");
  std::shared_ptr<Connection> connection;
  {
    const Unlocked unlocked;
    connection = request.accept(queue_pair, params);
  }
  return new ConnectionHandle(std::move(connection));
}

}  // namespace

void bind_connections(nb::module_& m) {
  nb::class_<ConnectParams>(m, "ConnectParams")
      .def(
          "__init__",
          [](ConnectParams* self, const nb::bytes& private_data, uint8_t responder_resources,
             uint8_t initiator_depth, uint8_t retry_count, uint8_t rnr_retry, uint32_t timeout_ms) {
            new (self) ConnectParams{from_bytes(private_data),
                                     responder_resources,
                                     initiator_depth,
                                     retry_count,
                                     rnr_retry,
                                     timeout_ms};
          },
          nb::arg("private_data"), nb::arg("responder_resources"), nb::arg("initiator_depth"),
          nb::arg("retry_count"), nb::arg("rnr_retry"), nb::arg("timeout_ms"));

  nb::class_<ConnectionEventsHandle>(m, "ConnectionEvents")
      .def(nb::init<>())
      .def("take", [](const ConnectionEventsHandle& self) { return self.events->take(); })
      .def("fileno", [](const ConnectionEventsHandle& self) { return self.events->fileno(); });

  nb::class_<ConnectionHandle>(m, "Connection")
      .def_prop_ro("state", [](const ConnectionHandle& self) { return self.connection.use("state").state(); })
      .def_prop_ro(
          "error_code",
          [](const ConnectionHandle& self) { return self.connection.use("error_code").error_code().str(); })
      .def_prop_ro(
          "error_detail",
          [](const ConnectionHandle& self) { return self.connection.use("error_detail").error_detail(); })
      .def_prop_ro("peer", [](const ConnectionHandle& self) { return self.connection.use("peer").peer(); })
      .def_prop_ro("private_data",
                   [](const ConnectionHandle& self) {
                     return to_bytes(self.connection.use("private_data").private_data());
                   })
      .def("fileno", [](const ConnectionHandle& self) { return self.connection.use("fileno").fileno(); })
      .def("acknowledge", [](ConnectionHandle& self) { self.connection.use("acknowledge").acknowledge(); })
      .def(
          "report_to",
          [](ConnectionHandle& self, const ConnectionEventsHandle& queue, uint64_t token) {
            return self.connection.use("wait").on_change(
                [events = queue.events, token] { events->push(token); });
          },
          nb::arg("queue"), nb::arg("token"),
          "Queues the token at each later change of state. False: fileno() alone reports changes.")
      .def("disconnect", [](ConnectionHandle& self) {
        if (self.connection.is_inherited()) return;  // it is the parent's, which may go on
        Connection& connection = self.connection.use("disconnect");
        const Unlocked unlocked;
        connection.disconnect();
      });

  nb::class_<RequestHandle>(m, "ConnectRequest")
      .def_prop_ro("peer", [](const RequestHandle& self) { return self.request.use("peer").peer(); })
      .def_prop_ro(
          "private_data",
          [](const RequestHandle& self) { return to_bytes(self.request.use("private_data").private_data()); })
      .def("accept", accept, nb::arg("qp"), nb::arg("params"))
      .def(
          "reject",
          [](RequestHandle& self, const nb::bytes& private_data) {
            self.request.use("reject").reject(from_bytes(private_data));
          },
          nb::arg("private_data"));

  nb::class_<ListenerHandle>(m, "Listener")
      .def_prop_ro("address", [](const ListenerHandle& self) { return self.listener.core()->address(); })
      .def("fileno", [](const ListenerHandle& self) { return self.listener.use("accept").fileno(); })
      .def("next", next, nb::sig("def next(self) -> ConnectRequest | None"))
      .def("take_over", take_over, nb::arg("socket"), nb::arg("timeout_ms"))
      .def("close", &ListenerHandle::close);
}

}  // namespace verbena::bind
