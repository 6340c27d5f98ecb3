// Binds _native.transport: nodes, ports, event queues and exposed memory.
#include "bind/transport/transport.h"

#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "bind/verbs/remote.h"
#include "util/pidfd.h"

namespace verbena::bind {
namespace {

using transport::Event;
using transport::EventKind;
using transport::Node;
using transport::Outcome;

nb::bytes to_bytes(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::list take(QueueHandle& self) {
  nb::list list;
  for (const Event& event : self.queue->take()) {
    list.append(nb::make_tuple(static_cast<int>(event.kind), event.session, event.call, event.token,
                               static_cast<int>(event.outcome), static_cast<int>(event.status), event.method,
                               to_bytes(event.payload.span())));
  }
  return list;
}

// Delivers all events of the queue: answers to their futures, requests to `on_request`. A cancelled request
// has the payload None.
void deliver(QueueHandle& self, const nb::dict& futures, const nb::object& on_request) {
  for (const Event& event : self.queue->take()) {
    if (event.kind != EventKind::finished) {
      const bool cancelled = event.kind == EventKind::cancelled;
      const nb::object payload = cancelled ? nb::none() : nb::object(to_bytes(event.payload.span()));
      on_request(event.session, event.call, event.method, payload);
      continue;
    }
    const nb::object token = nb::int_(event.token);
    const nb::object future = nb::borrow(PyDict_GetItemWithError(futures.ptr(), token.ptr()));
    if (!future) continue;  // the caller no longer waits
    PyDict_DelItem(futures.ptr(), token.ptr());
    const nb::object answer = to_bytes(event.payload.span());
    const bool ok = event.outcome == Outcome::ok;
    const nb::object end =
        ok ? answer : nb::make_tuple(static_cast<int>(event.outcome), static_cast<int>(event.status), answer);
    if (!nb::cast<bool>(future.attr("done")())) future.attr("set_result")(end);
  }
}

void make_node(NodeHandle* self, uint32_t busy_poll_us, bool sleeps, uint32_t poll_batch, bool loop_driven,
               double heartbeat_s, double silence_s, size_t max_region_bytes) {
  const auto ns = [](double seconds) { return static_cast<uint64_t>(seconds * 1e9); };
  new (self) NodeHandle(std::make_shared<Node>(transport::NodeOptions{
      busy_poll_us, loop_driven, ns(heartbeat_s), ns(silence_s), poll_batch, sleeps, max_region_bytes}));
}

void retire_port(NodeHandle& self, PortHandle& port) {
  const auto& node = self.node.share("retire a wire");
  const Unlocked unlocked;
  node->retire(*port.port);
}

PortHandle* add_port(NodeHandle& self, DomainHandle& pd, CompletionQueueHandle& cq,
                     SharedReceiveQueueHandle& srq, const std::string& name, uint32_t buffer_bytes,
                     uint32_t pool_buffers, uint32_t window, bool huge_pages, bool pin) {
  constexpr const char* kOperation = "add a wire";
  const auto& node = self.node.share(kOperation);
  auto port = std::make_shared<transport::Port>(
      pd.context.share(), pd.pd.share(kOperation), cq.cq.share(kOperation), srq.srq.share(kOperation),
      transport::PortOptions{name, buffer_bytes, pool_buffers, window, huge_pages, pin});
  const Unlocked unlocked;
  node->add_port(port);
  return new PortHandle{Owned(node), Owned(port)};
}

void add_queue(PortHandle& self, CompletionQueueHandle& cq) {
  const auto& queue = cq.cq.share("add a completion queue");
  const Unlocked unlocked;
  self.node->add_queue(*self.port, queue);
}

LinkHandle* prepare_link(PortHandle& self, QueuePairHandle& qp) {
  const auto held = lock_from_python(*self.node);
  return new LinkHandle{self.node,
                        std::make_unique<transport::Link>(self.port.share(), qp.qp.share("prepare a link"))};
}

void send_ready(LinkHandle& self) {
  const auto held = lock_from_python(*self.node);
  if (!self.link || !self.link->send_ready()) {
    throw Error("queue_full", "say ready", "the link was dropped, or there is no buffer to send from");
  }
}

SessionHandle* add_session(NodeHandle& self, uint64_t id, const std::string& peer, uint64_t peer_epoch,
                           QueueHandle& control, QueueHandle* requests, uint64_t max_message_bytes,
                           uint32_t max_serving, uint32_t max_waiting, uint32_t fragment_bytes) {
  const auto& node = self.node.share("add a session");
  auto session = node->add_session({id, peer, max_message_bytes, max_serving, max_waiting, fragment_bytes},
                                   control.queue.share(), requests ? requests->queue.share() : nullptr);
  return new SessionHandle{Owned(node), Owned(session), peer_epoch};
}

nb::tuple pools(PortHandle& self) {
  const auto held = lock_from_python(*self.node);
  transport::Port& port = *self.port;
  const auto used = [](const transport::BufferPool& pool) { return pool.most() - pool.available(); };
  return nb::make_tuple(port.sends().most(), used(port.sends()), port.receives().most(),
                        used(port.receives()));
}

// `dropped` is destroyed after `held`: dropping owners may run Python code, so it needs the GIL and must not
// hold the node's lock.
void sweep_registrations(NodeHandle& self) {
  Node& node = self.node.use("sweep registrations");
  transport::RegistrationCache::Owners dropped;
  const auto held = lock_from_python(node);
  dropped = node.registrations().sweep();
}

nb::tuple registrations(NodeHandle& self) {
  const auto held = lock_from_python(*self.node.core());
  const transport::RegistrationCache& cache = self.node.core()->registrations();
  return nb::make_tuple(cache.hits(), cache.misses(), cache.evictions(), cache.entries(), cache.bytes());
}

void set_capture(NodeHandle& self, CaptureHandle* capture) {
  Node& node = self.node.use("capture");
  const auto held = lock_from_python(node);
  node.set_capture(capture ? capture->capture : nullptr);
}

nb::tuple take_captured(NodeHandle& self, CaptureHandle& capture) {
  std::vector<std::byte> blocks;
  uint64_t packets = 0, dropped = 0;
  {
    const auto held = lock_from_python(*self.node.core());
    blocks = capture.capture->take();
    packets = capture.capture->packets();
    dropped = capture.capture->dropped();
  }
  return nb::make_tuple(to_bytes(blocks), packets, dropped);
}

// Enumerations and sizes that Python also uses.
void bind_session_values(nb::module_& m) {
  nb::enum_<EventKind>(m, "EventKind", nb::is_arithmetic(), "What an event reports.")
      .value("FINISHED", EventKind::finished, "A call or operation of this side has ended.")
      .value("REQUEST", EventKind::request, "The peer calls a method.")
      .value("CANCELLED", EventKind::cancelled, "The peer no longer waits for its call.")
      .value("LINK_LOST", EventKind::link_lost, "The session has lost its link.")
      .value("PEER_CLOSED", EventKind::peer_closed, "The peer ends the session.");
  nb::enum_<Outcome>(m, "Outcome", nb::is_arithmetic(), "How a call or an operation ended.")
      .value("OK", Outcome::ok)
      .value("REMOTE_FAILURE", Outcome::remote_failure)
      .value("NO_SUCH_METHOD", Outcome::no_such_method)
      .value("BUSY", Outcome::busy)
      .value("DENIED", Outcome::denied)
      .value("OUT_OF_RANGE", Outcome::out_of_range)
      .value("TOO_LONG", Outcome::too_long)
      .value("DAMAGED", Outcome::damaged)
      .value("FAILED_STATUS", Outcome::failed_status, "The work request failed: see its completion status.")
      .value("SESSION_FAILED", Outcome::session_failed);
  m.attr("SPARE_RECEIVES") = transport::Port::kSpareReceives;
  m.attr("MESSAGE_HEADER_BYTES") = sizeof(transport::MessageHeader);
  m.def(
      "open_pidfd",
      [](int pid) {
        UniqueFd opened = open_pidfd(pid);
        if (!opened) {
          PyErr_SetFromErrno(PyExc_OSError);
          throw nb::python_error();
        }
        return opened.release();
      },
      nb::arg("pid"), "os.pidfd_open(), which a Python that was built with old kernel headers lacks.");
}

}  // namespace

void bind_transport(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("transport", "Sessions: the native data path.");

  bind_session_values(m);
  nb::class_<QueueHandle>(m, "EventQueue", "Events from native code to an event loop.")
      .def(nb::init<>())
      .def("fileno", [](const QueueHandle& self) { return self.queue->fileno(); })
      .def("take", take, nb::sig("def take(self) -> list[tuple[int, int, int, int, int, int, int, bytes]]"),
           "(kind, session, call, token, outcome, status, method, payload) of each event.")
      .def("deliver", deliver, nb::arg("futures"), nb::arg("on_request"),
           nb::sig("def deliver(self, futures: object, on_request: object) -> None"),
           "Ends futures with the reply, or with (outcome, status, detail); calls on_request(session, call, "
           "method, payload) for requests, with None for those that were cancelled.")
      .def(
          "set_wakeups_suppressed",
          [](QueueHandle& self, bool suppressed) { self.queue->set_wakeups_suppressed(suppressed); },
          nb::arg("suppressed"),
          "True: the loop polls the queue, so that its descriptor need not become readable.");

  nb::class_<LinkHandle>(m, "Link", "A queue pair that is becoming a session's link.")
      .def("send_ready", send_ready,
           "Sends the peer the message that no operation of a former link can arrive here.")
      .def_prop_ro(
          "has_received",
          [](LinkHandle& self) {
            const auto held = lock_from_python(*self.node);
            return self.link && !self.link->early.empty();
          },
          "Whether a message of the peer has arrived.")
      .def("drop", &LinkHandle::drop, "Gives the link up. Close the queue pair first.");

  nb::class_<PortHandle>(m, "Port", "One wire of a node.")
      .def_prop_ro("links", [](const PortHandle& self) { return self.port->links(); })
      .def("pools", pools, nb::sig("def pools(self) -> tuple[int, int, int, int]"),
           "Send buffers, send buffers in use, receive buffers, receive buffers in use.")
      .def("add_queue", add_queue, nb::arg("cq"), "Adds a completion queue for queue pairs of further links.")
      .def("prepare", prepare_link, nb::arg("qp"),
           "Makes a queue pair a link. Call it before the queue pair is connected.");

  nb::class_<CaptureHandle>(m, "Capture", "Records messages as pcapng blocks until they are taken.")
      .def(
          "__init__",
          [](CaptureHandle* self, size_t snap_bytes, size_t room_bytes) {
            new (self) CaptureHandle{std::make_shared<transport::Capture>(snap_bytes, room_bytes)};
          },
          nb::kw_only(), nb::arg("snap_bytes"), nb::arg("room_bytes"));

  nb::class_<AudienceHandle>(m, "Audience",
                             "The sessions to which memory is lent: all, or those that are added.")
      .def(
          "__init__",
          [](AudienceHandle* self, bool of_everybody) {
            new (self) AudienceHandle{std::make_shared<transport::Audience>(of_everybody)};
          },
          nb::kw_only(), nb::arg("of_everybody"))
      .def_prop_ro(
          "group", [](const AudienceHandle& self) { return MemoryGroupHandle{self.audience->group()}; },
          "The group of memory that is allocated for this audience.");

  nb::class_<NodeHandle>(m, "Node", "A process's end of all its sessions.")
      .def("__init__", make_node, nb::kw_only(), nb::arg("busy_poll_us"), nb::arg("sleeps"),
           nb::arg("poll_batch"), nb::arg("loop_driven"), nb::arg("heartbeat_s"), nb::arg("silence_s"),
           nb::arg("max_region_bytes"))
      .def("add_port", add_port, nb::arg("pd"), nb::arg("cq"), nb::arg("srq"), nb::kw_only(), nb::arg("name"),
           nb::arg("buffer_bytes"), nb::arg("pool_buffers"), nb::arg("window"), nb::arg("huge_pages"),
           nb::arg("pin"))
      .def("retire_port", retire_port, nb::arg("port"), "Stops using a wire whose device was removed.")
      .def("add_session", add_session, nb::arg("id"), nb::arg("peer"), nb::kw_only(), nb::arg("peer_epoch"),
           nb::arg("control"), nb::arg("requests").none(), nb::arg("max_message_bytes"),
           nb::arg("max_serving"), nb::arg("max_waiting"), nb::arg("fragment_bytes"))
      .def(
          "remove_session",
          [](NodeHandle& self, SessionHandle& session) {
            const Unlocked unlocked;
            self.node.core()->remove_session(*session.session);
          },
          nb::arg("session"))
      .def(
          "admit",
          [](NodeHandle& self, const AudienceHandle& audience, uint64_t session) {
            Node& node = self.node.use("lend memory");
            const auto held = lock_from_python(node);
            audience.audience->add(session);
          },
          nb::arg("audience"), nb::arg("session"), "Adds a session to an audience.")
      .def(
          "revoke",
          [](NodeHandle& self, const AudienceHandle& audience, uint64_t session) {
            const auto held = lock_from_python(*self.node.core());
            self.node.core()->revoke(*audience.audience, session);
          },
          nb::arg("audience"), nb::arg("session"),
          "Removes a session from an audience, and ends what was lent to it.")
      .def_prop_ro("regions",
                   [](NodeHandle& self) {
                     Node& node = self.node.use("regions");
                     const auto held = lock_from_python(node);
                     return node.regions().size();
                   })
      .def("sweep_registrations", sweep_registrations,
           "Drops cached registrations of memory that has no other owner.")
      .def("registrations", registrations,
           nb::sig("def registrations(self) -> tuple[int, int, int, int, int]"),
           "The registration cache: hits, misses, evictions, entries, bytes.")
      .def("set_capture", set_capture, nb::arg("capture").none(),
           "Records messages there; None: stops recording.")
      .def("take_captured", take_captured, nb::arg("capture"),
           nb::sig("def take_captured(self, capture: Capture) -> tuple[bytes, int, int]"),
           "Whole blocks since the last call; messages recorded and messages dropped, ever.")
      .def("fileno", [](const NodeHandle& self) { return self.node.use("fileno").fileno(); })
      .def(
          "drive",
          [](NodeHandle& self, uint32_t spin_us, const QueueHandle& queue, size_t enough) {
            Node& node = self.node.use("drive");
            // Usually there are completions, and releasing the GIL would cost more than handling them.
            bool found = false;
            if (const auto held = node.try_lock(); held) found = node.drive_once();
            if (found && queue.queue->size() >= enough) return true;
            const Unlocked unlocked;
            return node.drive(spin_us, *queue.queue, enough) || found;
          },
          nb::arg("spin_us"), nb::arg("queue"), nb::arg("enough"))
      .def("acknowledge",
           [](NodeHandle& self) {
             Node& node = self.node.use("acknowledge");
             const Unlocked unlocked;
             node.acknowledge();
           })
      .def("arm_and_poll",
           [](NodeHandle& self) {
             Node& node = self.node.use("arm and poll");
             const Unlocked unlocked;
             return node.arm_and_poll();
           })
      .def("close", &NodeHandle::close);
  bind_exposed_region(m);
  bind_remote_region(m);
  bind_session(m);
}

}  // namespace verbena::bind
