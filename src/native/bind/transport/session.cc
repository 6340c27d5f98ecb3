// Binds sessions: attaching links, replying to requests, and calls that block or report to an event queue.
#include "bind/transport/session.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bind/bind.h"
#include "bind/errors.h"
#include "bind/verbs/waiting.h"
#include "transport/node/methods.h"
#include "verbs/types.h"

namespace verbena::bind {

using transport::Node;
using transport::Operation;
using transport::Outcome;
using transport::Session;

namespace {
constexpr int kMaxDrainRounds = 64;  // other links of the node may bring more without end
}

void raise_setup(const SessionHandle& self, ErrorCode code, const char* operation,
                 const std::string& detail) {
  raise(setup_error(code, operation, detail, self.session->peer()));
}

void raise_outcome(const SessionHandle& self, const char* operation, Outcome outcome, Status status,
                   std::string_view detail) {
  using namespace nb::literals;
  // The text comes from the peer and need not be valid UTF-8.
  const nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(detail.data(), static_cast<Py_ssize_t>(detail.size()), "replace"));
  raise(nb::module_::import_("verbena.transport.outcomes")
            .attr("outcome_error")(static_cast<int>(outcome), static_cast<int>(status), text,
                                   "operation"_a = operation,
                                   "peer"_a = nb::str(self.session->peer().c_str())));
}

void raise_refused(const SessionHandle& self, const char* operation) {
  const bool over = self.session->is_over();
  raise_outcome(self, operation, over ? Outcome::session_failed : Outcome::busy, Status::success,
                over ? "the session has ended" : "too many messages wait to be sent");
}

nb::bytes finish_call(SessionHandle& self, Operation& call, const char* operation, double timeout_s) {
  Node& node = *self.node;
  bool done = false;
  const auto cancel = [&] {
    const auto held = lock_from_python(node);
    if (call.finished.load()) {
      node.operations().end(call);
    } else {
      self.session->cancel(call);
    }
  };
  try {
    done = wait_with_signals(deadline_after(timeout_s),
                             [&](uint64_t until_ns) { return node.wait(call, until_ns); });
  } catch (...) {
    cancel();
    throw;
  }
  if (!done) {
    cancel();
    raise_setup(self, "call_timeout", operation, "");
  }
  const Outcome outcome = call.outcome;
  const Status status = call.status;
  nb::bytes answer(call.answer().data(), call.answer().size());
  {
    const auto held = lock_from_python(node);
    node.operations().end(call);
  }
  if (outcome != Outcome::ok) [[unlikely]] {
    raise_outcome(self, operation, outcome, status, {answer.c_str(), answer.size()});
  }
  return answer;
}

uint64_t hand_over(SessionHandle& self, Operation* call, QueueHandle& queue, uint64_t token) {
  if (!call) return 0;
  return self.session->report(*call, queue.queue.share(), token);
}

namespace {

nb::bytes call(SessionHandle& self, uint32_t method, const nb::handle& payload, double timeout_s) {
  Session& session = self.use("call");
  Node& node = *self.node.core();
  const BufferView view = view_of(payload, "call", false, "payload");
  Operation* call;
  {
    const auto held = lock_from_python(node);
    call = session.call(method, bytes_of(view));
    if (call && node.spin_for_reply(*call)) {
      nb::bytes answer(call->answer().data(), call->answer().size());
      node.operations().end(*call);
      return answer;
    }
  }
  if (!call) raise_refused(self, "call");
  return finish_call(self, *call, "call", timeout_s);
}

uint64_t start_call(SessionHandle& self, uint32_t method, const nb::handle& payload, QueueHandle& queue,
                    uint64_t token) {
  Session& session = self.use("call");
  const BufferView view = view_of(payload, "call", false, "payload");
  const auto held = lock_from_python(*self.node);
  return hand_over(self, session.call(method, bytes_of(view)), queue, token);
}

void attach(SessionHandle& self, LinkHandle& link, uint64_t received, uint64_t acknowledged, uint32_t window,
            uint32_t peer_buffer_bytes) {
  const Unlocked unlocked;
  const auto held = self.node->lock();
  if (!link.link) throw Error("invalid_argument", "attach", "the link was dropped or is in use");
  self.session->attach(std::move(link.link), received, acknowledged, window, peer_buffer_bytes);
}

nb::dict metrics(SessionHandle& self) {
  std::vector<std::pair<std::string, std::shared_ptr<transport::Metrics>>> wires;
  {
    const auto held = lock_from_python(*self.node);
    wires = self.session->metrics_by_wire();
  }
  const auto histogram = [](const transport::Histogram& values) {
    nb::list buckets;
    for (size_t i = 0; i < values.kBuckets; ++i) buckets.append(values.bucket(i));
    return nb::make_tuple(values.sum_ns(), buckets);
  };
  nb::dict all;
  for (const auto& [wire, values] : wires) {
    nb::dict one;
    for (size_t i = 0; i < values->counts.size(); ++i) {
      const std::string_view name = transport::kCountNames[i];
      one[nb::str(name.data(), name.size())] = values->counts[i].load(std::memory_order_relaxed);
    }
    for (const auto& [name, member] : transport::Metrics::kHistograms) {
      one[nb::str((std::string(name) + "_ns").c_str())] = histogram(*values.*member);
    }
    all[wire.c_str()] = one;
  }
  return all;
}

template <typename Function>
auto locked(Function function) {
  return [function](SessionHandle& self) {
    const auto held = lock_from_python(*self.node);
    return function(*self.session);
  };
}

}  // namespace

void bind_session(nb::module_& m) {
  m.def("method_number", transport::method::of_name, nb::arg("name"));
  m.def("histogram_bound_ns", transport::Histogram::upper_ns, nb::arg("bucket"),
        "The exclusive upper bound of a histogram's bucket.");
  m.attr("HISTOGRAM_BUCKETS") = transport::Histogram::kBuckets;
  m.def(
      "counter_names",
      [] {
        nb::typed<nb::list, nb::str> names;
        for (const std::string_view name : transport::kCountNames)
          names.append(nb::str(name.data(), name.size()));
        return names;
      },
      "The counters of Session.metrics(), in order.");
  m.def(
      "histogram_names",
      [] {
        nb::typed<nb::list, nb::str> names;
        for (const auto& [name, member] : transport::Metrics::kHistograms) {
          names.append(nb::str(name.data(), name.size()));
        }
        return names;
      },
      "The timed operations: Session.metrics() has their histograms as NAME_ns.");
  m.attr("METHOD_ECHO") = transport::method::echo;
  m.attr("METHOD_ATOMIC") = transport::method::atomic;
  m.def(
      "atomic_request",
      [](uint64_t key, uint64_t offset, Opcode opcode, uint64_t compare_add, uint64_t swap) {
        const transport::AtomicRequest request{.key = key,
                                               .offset = offset,
                                               .compare_add = compare_add,
                                               .swap = swap,
                                               .opcode = static_cast<uint32_t>(opcode)};
        return nb::bytes(&request, sizeof request);
      },
      nb::arg("key"), nb::arg("offset"), nb::arg("opcode"), nb::arg("compare_add"), nb::arg("swap"),
      nb::sig("def atomic_request(key: int, offset: int, opcode: verbena._native.Opcode, compare_add: int, "
              "swap: int) -> bytes"),
      "The payload of a call of METHOD_ATOMIC.");

  nb::class_<SessionHandle> session(m, "Session", "A conversation with one peer that outlives its links.");
  session.def_prop_ro("id", [](const SessionHandle& self) { return self.session->id(); })
      .def_prop_ro(
          "audience", [](const SessionHandle& self) { return AudienceHandle{self.session->audience()}; },
          "This session alone.")
      .def_prop_ro("received", locked([](Session& s) { return s.sequence().done(); }))
      .def_prop_ro("sent", locked([](Session& s) { return s.sequence().sent(); }))
      .def_prop_ro("acknowledged", locked([](Session& s) { return s.sequence().acknowledged(); }))
      .def_prop_ro("links", locked([](Session& s) { return s.links(); }))
      .def_prop_ro("serving", locked([](Session& s) { return s.serving(); }))
      .def_prop_ro("waiting", locked([](Session& s) { return s.waiting(); }))
      .def_prop_ro("has_link", locked([](Session& s) { return s.link() != nullptr; }))
      .def_prop_ro("is_over", locked([](Session& s) { return s.is_over(); }))
      .def_prop_ro("buffer_bytes", locked([](Session& s) { return s.buffer_bytes(); }))
      .def("attach", attach, nb::arg("link"), nb::kw_only(), nb::arg("received"), nb::arg("acknowledged"),
           nb::arg("window"), nb::arg("peer_buffer_bytes"))
      .def(
          "lose_link",
          [](SessionHandle& self, uint64_t links, const std::string& why) {
            const Unlocked unlocked;
            const auto held = self.node->lock();
            for (int i = 0; i < kMaxDrainRounds && self.node->drive_once(); ++i) continue;
            if (self.session->links() == links) self.session->lose_link(Status::success, why);
          },
          nb::arg("links"), nb::arg("why"),
          "Handles what has arrived, then loses the link with this number, if it is still in use.")
      .def("detach", locked([](Session& s) { s.lose_link(Status::success, "detached", false); }),
           "The link is about to be replaced or closed on purpose.")
      .def("release_link", locked([](Session& s) { s.release_link(); }),
           "The lost link's queue pair was closed.")
      .def(
          "end",
          [](SessionHandle& self, const std::string& why) {
            const Unlocked unlocked;
            const auto held = self.node->lock();
            self.session->end(why);
          },
          nb::arg("why"))
      .def("send_close", locked([](Session& s) { s.send_close(); }))
      .def("call", call, nb::arg("method"), nb::arg("payload"), nb::arg("timeout_s"))
      .def("start_call", start_call, nb::arg("method"), nb::arg("payload"), nb::arg("queue"),
           nb::arg("token"))
      .def(
          "cancel",
          [](SessionHandle& self, uint64_t id) {
            if (self.node.is_inherited()) return;  // the operation is the parent's
            const auto held = lock_from_python(*self.node);
            if (Operation* open = self.node->operations().find(id - 1, *self.session))
              self.session->cancel(*open);
          },
          nb::arg("call"))
      .def(
          "reply",
          [](SessionHandle& self, uint64_t call, const nb::handle& payload) {
            const BufferView view(payload, PyBUF_SIMPLE);
            const auto held = lock_from_python(*self.node);
            self.session->answered(call);
            if (!self.session->reply(call, bytes_of(view))) {
              self.session->fail(call, Outcome::too_long, "the answer is longer than a message may be");
            }
          },
          nb::arg("call"), nb::arg("payload"))
      .def(
          "fail",
          [](SessionHandle& self, uint64_t call, Outcome outcome, const std::string& why) {
            const auto held = lock_from_python(*self.node);
            self.session->answered(call);
            self.session->fail(call, outcome, why);
          },
          nb::arg("call"), nb::arg("outcome"), nb::arg("why"))
      .def("metrics", metrics, nb::sig("def metrics(self) -> dict[str, dict[str, object]]"));
  bind_session_memory(session);
  bind_session_batch(session);
}

}  // namespace verbena::bind
