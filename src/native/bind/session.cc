// Sessions: links come and go under them; calls and one-sided work, blocking or reported to an event queue.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bind/bind.h"
#include "bind/errors.h"
#include "bind/transport.h"
#include "bind/waiting.h"
#include "transport/bulk.h"

namespace verbena::bind {
namespace {

using transport::Call;
using transport::CallTable;
using transport::Node;
using transport::Outcome;
using transport::Session;

std::span<const std::byte> bytes_of(const BufferView& view) { return {view.data(), view.size()}; }

[[noreturn]] void raise_outcome(const SessionHandle& self, const char* operation, Outcome outcome,
                                Status status, std::string_view detail) {
  using namespace nb::literals;
  const nb::object error =
      nb::module_::import_("verbena.transport.outcomes")
          .attr("outcome_error")(static_cast<int>(outcome), static_cast<int>(status),
                                 nb::str(detail.data(), detail.size()), "operation"_a = operation,
                                 "peer"_a = nb::str(self.session->peer().c_str()));
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

[[noreturn]] void raise_refused(const SessionHandle& self, const char* operation) {
  const bool over = self.session->is_over();
  raise_outcome(self, operation, over ? Outcome::session_failed : Outcome::busy, Status::success,
                over ? "the session has ended" : "too many messages wait to be sent");
}

// Waits for a call of ours and takes its answer; a signal or the deadline cancels it.
nb::bytes finish_call(SessionHandle& self, Call& call, const char* operation, double timeout_s) {
  Node& node = *self.node;
  bool done = false;
  const auto cancel = [&] {
    const auto held = lock_from_python(node);
    if (call.finished.load()) {
      node.calls().end(call);
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
    const nb::object error = setup_error("call_timeout", operation, "", self.session->peer());
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
  }
  const Outcome outcome = call.outcome;
  const Status status = call.status;
  nb::bytes answer(call.answer().data(), call.answer().size());
  {
    const auto held = lock_from_python(node);
    node.calls().end(call);
  }
  if (outcome != Outcome::ok) [[unlikely]] {
    raise_outcome(self, operation, outcome, status, {answer.c_str(), answer.size()});
  }
  return answer;
}

nb::bytes call(SessionHandle& self, uint32_t method, const nb::handle& payload, double timeout_s) {
  const BufferView view(payload, PyBUF_SIMPLE);
  Call* call;
  {
    const auto held = lock_from_python(*self.node);
    call = self.session->call(method, bytes_of(view));
    if (call && self.node->is_answered_at_once(*call) && call->outcome == Outcome::ok) {
      nb::bytes answer(call->answer().data(), call->answer().size());
      self.node->calls().end(*call);
      return answer;
    }
  }
  if (!call) raise_refused(self, "call");
  return finish_call(self, *call, "call", timeout_s);
}

// Hands a call that was begun to a queue; 0: it could not begin.
uint64_t hand_over(SessionHandle& self, Call* call, QueueHandle& queue, uint64_t token) {
  if (!call) return 0;
  return self.session->report(*call, queue.queue, token);
}

uint64_t start_call(SessionHandle& self, uint32_t method, const nb::handle& payload, QueueHandle& queue,
                    uint64_t token) {
  const BufferView view(payload, PyBUF_SIMPLE);
  const auto held = lock_from_python(*self.node);
  return hand_over(self, self.session->call(method, bytes_of(view)), queue, token);
}

void check_length(const SessionHandle& self, uint64_t length) {
  if (length > self.session->slot_bytes()) {
    throw Error("limit_exceeded", "one-sided", "longer than a slot: use the bulk form");
  }
}

Call* begin_read(SessionHandle& self, uint64_t region, uint64_t offset, uint32_t length) {
  check_length(self, length);
  return self.session->operate(Opcode::read, region, offset, nullptr, length, nullptr);
}

Call* begin_write(SessionHandle& self, uint64_t region, uint64_t offset, const BufferView& view) {
  check_length(self, view.size());
  return self.session->operate(Opcode::write, region, offset, view.data(), static_cast<uint32_t>(view.size()),
                               nullptr);
}

nb::bytes read(SessionHandle& self, uint64_t region, uint64_t offset, uint32_t length, double timeout_s) {
  Call* begun;
  {
    const auto held = lock_from_python(*self.node);
    begun = begin_read(self, region, offset, length);
  }
  if (!begun) raise_refused(self, "read");
  return finish_call(self, *begun, "read", timeout_s);
}

void write(SessionHandle& self, uint64_t region, uint64_t offset, const nb::handle& data, double timeout_s) {
  const BufferView view(data, PyBUF_SIMPLE);
  Call* begun;
  {
    const auto held = lock_from_python(*self.node);
    begun = begin_write(self, region, offset, view);
  }
  if (!begun) raise_refused(self, "write");
  finish_call(self, *begun, "write", timeout_s);
}

using Progress = std::atomic<uint64_t>;

// The memory's registration from last time, or a new one. With an owner it may be kept for the next time.
transport::KeptRegistration take_registration(Node& node, const BufferView& view, const nb::handle& owner) {
  const uint32_t access = view.readonly() ? 0 : access::local_write;
  const bool keeps = !owner.is_none() && view.size() <= node.registrations().most_bytes();
  transport::KeptRegistration entry;
  if (keeps) {
    const auto held = lock_from_python(node);
    entry = node.registrations().take(view.data(), view.size(), access);
  }
  if (!entry.memory) {
    if (keeps) entry.owner = std::make_unique<BufferOwner>(BufferView(owner, PyBUF_FULL_RO));
    entry.memory = std::make_unique<transport::Registration>(view.data(), view.size(), access,
                                                             node.options().max_region_bytes);
  }
  return entry;
}

void give_registration(Node& node, transport::KeptRegistration entry, bool is_whole) {
  transport::RegistrationCache::Owners dropped;  // last: with the GIL, without the lock
  const auto held = lock_from_python(node);
  if (entry.owner && is_whole) {
    dropped = node.registrations().keep(std::move(entry));
  } else {
    entry.memory->close();
    dropped.push_back(std::move(entry.owner));
  }
}

void transfer(SessionHandle& self, bool is_put, const nb::handle& buffer, uint64_t region, uint64_t offset,
              uint32_t fragment_bytes, uint32_t depth, const nb::object& progress, const nb::handle& owner) {
  const BufferView view(buffer, is_put ? PyBUF_SIMPLE : PyBUF_WRITABLE);
  transport::KeptRegistration entry = take_registration(*self.node, view, owner);
  const transport::BulkTarget target{region, offset, view.data(), view.size()};
  transport::BulkResult result;
  Progress acknowledged{0};
  bool raised = false;
  {
    Unlocked unlocked;
    const auto keep_going = [&] {
      raised = unlocked.with_gil([&] {
        if (PyErr_CheckSignals() != 0) return true;
        if (progress.is_none()) return false;
        PyObject* reported = PyObject_CallFunction(progress.ptr(), "K", acknowledged.load());
        Py_XDECREF(reported);
        return reported == nullptr;
      });
      return !raised;
    };
    result = (is_put ? transport::put : transport::get)(
        *self.node, *self.session, target, {fragment_bytes, depth}, *entry.memory, acknowledged, keep_going);
  }
  give_registration(*self.node, std::move(entry), !raised && result.outcome == Outcome::ok);
  if (raised) throw nb::python_error();
  if (result.outcome != Outcome::ok) {
    raise_outcome(self, is_put ? "put" : "get", result.outcome, result.status, result.detail);
  }
}

nb::bytes deliver(SessionHandle& self, const nb::handle& buffer, uint64_t region, uint64_t offset,
                  uint32_t method, const nb::handle& payload, double timeout_s, uint64_t link,
                  uint32_t fragment_bytes, uint32_t depth, const nb::handle& owner) {
  const BufferView view(buffer, PyBUF_SIMPLE), announced(payload, PyBUF_SIMPLE);
  transport::KeptRegistration entry = take_registration(*self.node, view, owner);
  const transport::BulkTarget target{region, offset, view.data(), view.size()};
  const transport::Announcement announcement{method, bytes_of(announced), link};
  transport::BulkResult result;
  {
    const Unlocked unlocked;
    const uint64_t ends = deadline_after(timeout_s);
    result = transport::deliver(*self.node, *self.session, target, {fragment_bytes, depth}, *entry.memory,
                                announcement, [&] { return now_ns() < ends; });
  }
  const bool is_whole = result.outcome == Outcome::ok && !result.interrupted;
  give_registration(*self.node, std::move(entry), is_whole);
  if (result.interrupted) {
    const nb::object error = setup_error("call_timeout", "deliver", "", self.session->peer());
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
  }
  if (!is_whole) raise_outcome(self, "deliver", result.outcome, result.status, result.detail);
  return nb::bytes(result.detail.data(), result.detail.size());
}

void attach(SessionHandle& self, LinkHandle& link, uint64_t received, uint64_t told, uint32_t window,
            uint32_t peer_slot_bytes) {
  const Unlocked unlocked;
  const auto held = self.node->lock();
  if (!link.link) throw Error("invalid_argument", "attach", "the link was dropped or is in use");
  self.session->attach(std::move(link.link), received, told, window, peer_slot_bytes);
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
    one["call_ns"] = histogram(values->call);
    one["read_ns"] = histogram(values->read);
    one["write_ns"] = histogram(values->write);
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
  m.def("histogram_bound_ns", transport::Histogram::upper_ns, nb::arg("bucket"));
  m.attr("METHOD_ECHO") = transport::method::echo;
  m.attr("METHOD_ATOMIC") = transport::method::atomic;

  nb::class_<SessionHandle>(m, "Session", "A conversation with one peer that outlives its links.")
      .def_prop_ro("id", [](const SessionHandle& self) { return self.session->id(); })
      .def_prop_ro("received", locked([](Session& s) { return s.sequence().done(); }))
      .def_prop_ro("sent", locked([](Session& s) { return s.sequence().sent(); }))
      .def_prop_ro("acknowledged", locked([](Session& s) { return s.sequence().acknowledged(); }))
      .def_prop_ro("links", locked([](Session& s) { return s.links(); }))
      .def_prop_ro("serving", locked([](Session& s) { return s.serving(); }))
      .def_prop_ro("waiting", locked([](Session& s) { return s.waiting(); }))
      .def_prop_ro("has_link", locked([](Session& s) { return s.link() != nullptr; }))
      .def_prop_ro("is_over", locked([](Session& s) { return s.is_over(); }))
      .def_prop_ro("slot_bytes", locked([](Session& s) { return s.slot_bytes(); }))
      .def("attach", attach, nb::arg("link"), nb::kw_only(), nb::arg("received"), nb::arg("told"),
           nb::arg("window"), nb::arg("peer_slot_bytes"))
      .def(
          "lose_link",
          [](SessionHandle& self, uint64_t links, const std::string& why) {
            const auto held = lock_from_python(*self.node);
            if (self.session->links() == links) self.session->lose_link(Status::success, why);
          },
          nb::arg("links"), nb::arg("why"), "The link with this number is gone; a later one is not meant.")
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
      .def("say_goodbye", locked([](Session& s) { s.say_goodbye(); }))
      .def("call", call, nb::arg("method"), nb::arg("payload"), nb::arg("timeout_s"))
      .def("start_call", start_call, nb::arg("method"), nb::arg("payload"), nb::arg("queue"),
           nb::arg("token"))
      .def(
          "cancel",
          [](SessionHandle& self, uint64_t id) {
            const auto held = lock_from_python(*self.node);
            if (Call* open = self.node->calls().find(id - 1, *self.session)) self.session->cancel(*open);
          },
          nb::arg("call"))
      .def(
          "reply",
          [](SessionHandle& self, uint64_t call, const nb::handle& payload) {
            const BufferView view(payload, PyBUF_SIMPLE);
            const auto held = lock_from_python(*self.node);
            self.session->answered();
            if (!self.session->reply(call, bytes_of(view))) {
              self.session->fail(call, Outcome::too_long, "the answer is longer than a message may be");
            }
          },
          nb::arg("call"), nb::arg("payload"))
      .def(
          "fail",
          [](SessionHandle& self, uint64_t call, int outcome, const std::string& why) {
            const auto held = lock_from_python(*self.node);
            self.session->answered();
            self.session->fail(call, static_cast<Outcome>(outcome), why);
          },
          nb::arg("call"), nb::arg("outcome"), nb::arg("why"))
      .def("read", read, nb::arg("region"), nb::arg("offset"), nb::arg("length"), nb::arg("timeout_s"))
      .def("write", write, nb::arg("region"), nb::arg("offset"), nb::arg("data"), nb::arg("timeout_s"))
      .def(
          "start_read",
          [](SessionHandle& self, uint64_t region, uint64_t offset, uint32_t length, QueueHandle& queue,
             uint64_t token) {
            const auto held = lock_from_python(*self.node);
            return hand_over(self, begin_read(self, region, offset, length), queue, token);
          },
          nb::arg("region"), nb::arg("offset"), nb::arg("length"), nb::arg("queue"), nb::arg("token"))
      .def(
          "start_write",
          [](SessionHandle& self, uint64_t region, uint64_t offset, const nb::handle& data,
             QueueHandle& queue, uint64_t token) {
            const BufferView view(data, PyBUF_SIMPLE);
            const auto held = lock_from_python(*self.node);
            return hand_over(self, begin_write(self, region, offset, view), queue, token);
          },
          nb::arg("region"), nb::arg("offset"), nb::arg("data"), nb::arg("queue"), nb::arg("token"))
      .def("transfer", transfer, nb::arg("is_put"), nb::arg("buffer"), nb::arg("region"), nb::arg("offset"),
           nb::kw_only(), nb::arg("fragment_bytes"), nb::arg("depth"), nb::arg("progress").none(),
           nb::arg("owner").none(), "With an owner of the memory its registration is kept for the next time.")
      .def("deliver", deliver, nb::arg("buffer"), nb::arg("region"), nb::arg("offset"), nb::arg("method"),
           nb::arg("payload"), nb::arg("timeout_s"), nb::arg("link"), nb::kw_only(),
           nb::arg("fragment_bytes"), nb::arg("depth"), nb::arg("owner").none())
      .def("metrics", metrics, nb::sig("def metrics(self) -> dict[str, dict[str, object]]"));
}

}  // namespace verbena::bind
