// _native.kv: RdmaFrontend and RdmaStream, the server's and the client's end of Valkey over RDMA, and the
// ValkeyRdmaLink that both need.
// Python creates the queue pairs and connections; the protocol is in kv/frontends and kv/client.
#include <nanobind/stl/string.h>

#include "bind/kv/store.h"
#include "bind/verbs/connections.h"
#include "bind/verbs/domain.h"
#include "bind/verbs/queues.h"
#include "bind/verbs/waiting.h"
#include "kv/client/valkey_rdma_stream.h"
#include "kv/frontends/rdma_frontend.h"

namespace verbena::bind {
namespace {

struct ValkeyRdmaLinkHandle {
  ~ValkeyRdmaLinkHandle() {
    if (made_in != forks()) link.release();  // leaked: see bind/handle.h
  }

  std::unique_ptr<kv::ValkeyRdmaLink> link;
  uint32_t made_in = forks();
};

struct RdmaStreamHandle {
  Owned<kv::ValkeyRdmaStream> stream;
};

struct RdmaFrontendHandle {
  Owned<kv::Engine> engine;
  Owned<kv::EventLoop> loop;
  Owned<kv::RdmaFrontend> frontend;
};

std::unique_ptr<kv::ValkeyRdmaLink> take(ValkeyRdmaLinkHandle& self) {
  if (self.made_in != forks()) refuse_inherited("use a window");
  if (!self.link) throw Error("invalid_argument", "use a window", "it is in use already");
  return std::move(self.link);
}

void admit(RdmaFrontendHandle& self, ValkeyRdmaLinkHandle& link, QueuePairHandle& qp,
           ConnectionHandle& connection, nb::object kept) {
  auto* held = new nb::object(std::move(kept));
  const std::shared_ptr<void> shared(held, [](void* object) {
    const nb::gil_scoped_acquire gil;
    delete static_cast<nb::object*>(object);
  });
  auto new_link = take(link);
  const auto& queue_pair = qp.qp.share("admit");
  const auto& established = connection.connection.share("admit");
  const Unlocked unlocked;
  self.frontend->admit(std::move(new_link), queue_pair, established, shared);
}

void send(RdmaStreamHandle& self, const nb::handle& data, double timeout_s) {
  kv::ValkeyRdmaStream& stream = self.stream.use("talk to the store");
  const BufferView view(data, PyBUF_SIMPLE);
  std::string_view rest(reinterpret_cast<const char*>(view.data()), view.size());
  const bool done = wait_with_signals(deadline_after(timeout_s),
                                      [&](uint64_t until_ns) { return stream.send(rest, until_ns); });
  if (rest.empty()) return;
  if (!done) throw Error("call_timeout", "talk to the store", "the peer takes no more");
  throw Error("closed", "talk to the store", "the peer has ended the connection");
}

nb::object receive(RdmaStreamHandle& self, size_t most, double timeout_s) {
  kv::ValkeyRdmaStream& stream = self.stream.use("talk to the store");
  const bool done = wait_with_signals(deadline_after(timeout_s),
                                      [&](uint64_t until_ns) { return stream.receive(until_ns); });
  const std::string_view bytes = stream.received().substr(0, most);
  if (bytes.empty()) return done ? nb::object(nb::bytes("", 0)) : nb::none();
  nb::bytes result(bytes.data(), bytes.size());
  stream.consume(bytes.size());
  return result;
}

}  // namespace

void bind_kv_rdma(nb::module_& m) {
  nb::class_<ValkeyRdmaLinkHandle>(m, "ValkeyRdmaLink",
                                   "The buffers of a connection, created before it is connected.")
      .def(
          "__init__",
          [](ValkeyRdmaLinkHandle* self, DomainHandle& pd, CompletionQueueHandle& cq,
             SharedReceiveQueueHandle& srq, uint32_t window_bytes) {
            constexpr const char* kOperation = "make a window";
            new (self) ValkeyRdmaLinkHandle{std::make_unique<kv::ValkeyRdmaLink>(
                kv::ValkeyRdmaResources{pd.context.share(), pd.pd.share(kOperation), cq.cq.share(kOperation),
                                        srq.srq.share(kOperation)},
                window_bytes)};
          },
          nb::arg("pd"), nb::arg("cq"), nb::arg("srq"), nb::arg("window_bytes"));
  m.attr("VALKEY_RDMA_RECEIVES") = kv::ValkeyRdmaLink::kReceives;
  m.attr("VALKEY_RDMA_SENDS") = kv::ValkeyRdmaLink::kSends;

  nb::class_<RdmaFrontendHandle>(m, "RdmaFrontend", "Accepts clients that speak Valkey over RDMA.")
      .def(
          "__init__",
          [](RdmaFrontendHandle* self, EngineHandle& engine) {
            const auto frontend = [&] {
              const Unlocked unlocked;  // the engine's lock is taken, whose holder may wait for the GIL
              return std::make_shared<kv::RdmaFrontend>(*engine.engine, *engine.loop);
            };
            new (self) RdmaFrontendHandle{engine.engine, engine.loop, Owned(frontend())};
          },
          nb::arg("engine"), nb::keep_alive<1, 2>())
      .def(
          "rejection",
          [](RdmaFrontendHandle& self, const std::string& address) {
            const Unlocked unlocked;
            return std::string(self.frontend->rejection(address));
          },
          nb::arg("address"), "The error reply for a new client at this address; empty: accept it.")
      .def("admit", admit, nb::arg("link"), nb::arg("qp"), nb::arg("connection"), nb::arg("kept"),
           "Adds an established connection; keeps `kept` alive as long as the connection.")
      .def_prop_ro("clients",
                   [](RdmaFrontendHandle& self) {
                     const Unlocked unlocked;
                     return self.frontend->clients();
                   })
      .def("close", [](RdmaFrontendHandle& self) {
        const Unlocked unlocked;
        self.frontend->close();
      });

  nb::class_<RdmaStreamHandle>(m, "RdmaStream", "A client's connection. One thread at a time.")
      .def(
          "__init__",
          [](RdmaStreamHandle* self, ValkeyRdmaLinkHandle& link, QueuePairHandle& qp,
             ConnectionHandle& connection) {
            const auto& established = connection.connection.share("open a stream");
            const auto& queue_pair = qp.qp.share("open a stream");
            new (self) RdmaStreamHandle{
                Owned(std::make_shared<kv::ValkeyRdmaStream>(take(link), queue_pair, established))};
          },
          nb::arg("link"), nb::arg("qp"), nb::arg("connection"), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>())
      .def("send", send, nb::arg("data"), nb::arg("timeout_s") = -1.0,
           "Sends all of the data, or raises TimedOutError or ClosedError.")
      .def("receive", receive, nb::arg("most"), nb::arg("timeout_s") = -1.0,
           nb::sig("def receive(self, most: int, timeout_s: float = -1.0) -> bytes | None"),
           "Returns the bytes that have arrived. b\"\": the peer has ended the connection; None: nothing "
           "came in "
           "time.");
}

}  // namespace verbena::bind
