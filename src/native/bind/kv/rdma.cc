// _native.kv: RdmaFrontend and RdmaStream, the server's and the client's end of Valkey over RDMA, and the
// ValkeyRdmaLink that both need.
// Python creates the queue pairs and connections; the protocol is in kv/protocol.
#include <nanobind/stl/string.h>

#include "bind/kv/store.h"
#include "bind/verbs/connections.h"
#include "bind/verbs/domain.h"
#include "bind/verbs/queues.h"
#include "bind/verbs/waiting.h"
#include "kv/frontends/rdma_frontend.h"
#include "util/waiter.h"

namespace verbena::bind {
namespace {

constexpr uint64_t kSpinNs = 50'000;

struct ValkeyRdmaLinkHandle {
  std::unique_ptr<kv::ValkeyRdmaLink> link;
};

struct RdmaFrontendHandle {
  std::shared_ptr<kv::Engine> engine;
  std::shared_ptr<kv::EventLoop> loop;
  std::unique_ptr<kv::RdmaFrontend> frontend;
};

struct RdmaStreamHandle {
  std::unique_ptr<kv::ValkeyRdmaLink> link;
  std::shared_ptr<Connection> connection;
  std::mutex mutex;
};

std::unique_ptr<kv::ValkeyRdmaLink> take(ValkeyRdmaLinkHandle& self) {
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

[[noreturn]] void raise_over() {
  throw Error("closed", "talk to the store", "the peer has ended the connection");
}

// Drives the link until done() is true, the link has failed or the connection has ended. False: the time is
// over.
template <typename Done>
bool drive_until(RdmaStreamHandle& self, double timeout_s, Done done) {
  return wait_with_signals(deadline_after(timeout_s), [&](uint64_t until_ns) {
    kv::ValkeyRdmaLink& link = *self.link;
    const auto poll = [&] { return !link.drive() || done(); };
    const auto arm = [&] {
      link.cq().acknowledge();
      link.cq().arm(false);
    };
    const auto sleep = [&](uint64_t timeout_ns) {
      if (self.connection->state() != ConnectionState::established) return Wake::stop;
      if (sleep_on(link.cq().fileno(), self.connection->fileno(), timeout_ns).second) {
        self.connection->acknowledge();
      }
      return Wake::rearm;
    };
    return Waiter(kSpinNs, until_ns).wait(poll, arm, sleep) != WaitResult::timed_out;
  });
}

void send(RdmaStreamHandle& self, const nb::handle& data, double timeout_s) {
  const BufferView view(data, PyBUF_SIMPLE);
  std::string_view rest(reinterpret_cast<const char*>(view.data()), view.size());
  const bool done = drive_until(self, timeout_s, [&] {
    rest.remove_prefix(self.link->send(rest));
    return rest.empty();
  });
  if (!rest.empty() && !done) throw Error("call_timeout", "talk to the store", "the peer takes no more");
  if (!rest.empty()) raise_over();
}

nb::object receive(RdmaStreamHandle& self, size_t most, double timeout_s) {
  const bool done = drive_until(self, timeout_s, [&] { return !self.link->arrived().empty(); });
  const std::string_view bytes = self.link->arrived().substr(0, most);
  if (bytes.empty()) return done ? nb::object(nb::bytes("", 0)) : nb::none();
  nb::bytes result(bytes.data(), bytes.size());
  self.link->consume(bytes.size());
  return result;
}

}  // namespace

void bind_kv_rdma(nb::module_& m) {
  nb::class_<ValkeyRdmaLinkHandle>(m, "ValkeyRdmaLink",
                                   "Buffers of a connection, made before it is connected.")
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

  nb::class_<RdmaFrontendHandle>(m, "RdmaFrontend",
                                 "Lets clients that speak Valkey over RDMA into an engine.")
      .def(
          "__init__",
          [](RdmaFrontendHandle* self, EngineHandle& engine) {
            new (self) RdmaFrontendHandle{engine.engine, engine.loop, nullptr};
            const Unlocked unlocked;  // the engine's lock is taken, whose holder may wait for the GIL
            self->frontend = std::make_unique<kv::RdmaFrontend>(*engine.engine, *engine.loop);
          },
          nb::arg("engine"), nb::keep_alive<1, 2>())
      .def("admit", admit, nb::arg("link"), nb::arg("qp"), nb::arg("connection"), nb::arg("kept"),
           "A connection that is established; `kept` lives as long as it does.")
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
            new (self) RdmaStreamHandle{take(link), connection.connection.share("open a stream"), {}};
            self->link->limit_unanswered_writes();
            self->link->start(qp.qp.share("open a stream"));
          },
          nb::arg("link"), nb::arg("qp"), nb::arg("connection"), nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>())
      .def("send", send, nb::arg("data"), nb::arg("timeout_s") = -1.0,
           "All of it, or TimedOutError, or ClosedError.")
      .def("receive", receive, nb::arg("most"), nb::arg("timeout_s") = -1.0,
           nb::sig("def receive(self, most: int, timeout_s: float = -1.0) -> bytes | None"),
           "What there is; b\"\": the peer has ended it; None: nothing in time.");
}

}  // namespace verbena::bind
