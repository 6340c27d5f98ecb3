// Binds a session's access to its peer's memory: reads and writes that fit into a message buffer, and bulk
// transfers of any size.
#include <nanobind/stl/string.h>

#include "bind/errors.h"
#include "bind/transport/session.h"
#include "bind/verbs/remote.h"
#include "bind/verbs/waiting.h"
#include "transport/session/bulk.h"

namespace verbena::bind {
namespace {

using transport::Node;
using transport::Operation;
using transport::Outcome;

// A view of contiguous memory of any item type. What PyBUF_SIMPLE does not accept goes through a memoryview,
// which accepts more exporters and raises a precise error for the others.
BufferView view_of(const nb::handle& data) {
  try {
    return BufferView(data, PyBUF_SIMPLE);
  } catch (const nb::python_error&) {
    const nb::object view = nb::steal(PyMemoryView_FromObject(data.ptr()));
    if (!view) throw nb::python_error();
    return BufferView(view.attr("cast")("B"), PyBUF_SIMPLE);
  }
}

// Raises for requests that the peer would refuse: a region of another run, or more bytes than it has.
void check(const SessionHandle& self, const RemoteRegion& remote, const char* operation, uint64_t length) {
  if (remote.epoch != self.peer_epoch) [[unlikely]] {
    raise_setup(self, "region_denied", operation,
                "the region belongs to an earlier run of the peer, or to another node");
  }
  if (length > remote.length) [[unlikely]] {
    raise_setup(self, "out_of_range", operation,
                std::to_string(length) + " bytes in a region of " + std::to_string(remote.length));
  }
}

Operation* begin_read(SessionHandle& self, const RemoteRegion& remote) {
  return self.session->operate(Opcode::read, remote.key, remote.offset, nullptr,
                               static_cast<uint32_t>(remote.length), nullptr);
}

Operation* begin_write(SessionHandle& self, const RemoteRegion& remote, const BufferView& view) {
  return self.session->operate(Opcode::write, remote.key, remote.offset, view.data(),
                               static_cast<uint32_t>(view.size()), nullptr);
}

void check_fits_buffer(const SessionHandle& self, uint64_t length) {
  if (length > self.session->buffer_bytes()) {
    throw Error("limit_exceeded", "one-sided", "longer than a message buffer: use the bulk form");
  }
}

// Returns None if the region is longer than a message buffer: then use the bulk form.
nb::object read(SessionHandle& self, const RemoteRegion& remote, double timeout_s) {
  check(self, remote, "read", 0);
  Operation* begun;
  {
    const auto held = lock_from_python(*self.node);
    if (remote.length > self.session->buffer_bytes()) return nb::none();
    begun = begin_read(self, remote);
    if (begun && self.node->spin_for_reply(*begun)) {
      nb::bytes answer(begun->answer().data(), begun->answer().size());
      self.node->operations().end(*begun);
      return answer;
    }
  }
  if (!begun) raise_refused(self, "read");
  return finish_call(self, *begun, "read", timeout_s);
}

// Returns False if the data is longer than a message buffer: then use the bulk form.
bool write(SessionHandle& self, const RemoteRegion& remote, const nb::handle& data, double timeout_s) {
  const BufferView view = view_of(data);
  check(self, remote, "write", view.size());
  Operation* begun;
  {
    const auto held = lock_from_python(*self.node);
    if (view.size() > self.session->buffer_bytes()) return false;
    begun = begin_write(self, remote, view);
    if (begun && self.node->spin_for_reply(*begun)) {
      self.node->operations().end(*begun);
      return true;
    }
  }
  if (!begun) raise_refused(self, "write");
  finish_call(self, *begun, "write", timeout_s);
  return true;
}

using Progress = std::atomic<uint64_t>;

// Takes the memory's registration from the cache, or creates one. With an owner, return_registration() may
// put it into the cache afterwards.
transport::CachedRegistration take_registration(Node& node, const BufferView& view, const nb::handle& owner) {
  const uint32_t access = view.readonly() ? 0 : access::local_write;
  const bool keeps = !owner.is_none() && view.size() <= node.registrations().max_bytes();
  transport::CachedRegistration entry;
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

void return_registration(Node& node, transport::CachedRegistration entry, bool is_whole) {
  transport::RegistrationCache::Owners dropped;  // declared first: destroyed with the GIL, without the lock
  const auto held = lock_from_python(node);
  if (entry.owner && is_whole) {
    dropped = node.registrations().keep(std::move(entry));
  } else {
    entry.memory->close();
    dropped.push_back(std::move(entry.owner));
  }
}

void transfer(SessionHandle& self, bool is_put, const nb::handle& buffer, const RemoteRegion& remote,
              uint32_t fragment_bytes, uint32_t depth, const nb::object& progress, const nb::handle& owner) {
  const BufferView view(buffer, is_put ? PyBUF_SIMPLE : PyBUF_WRITABLE);
  check(self, remote, is_put ? "put" : "get", view.size());
  transport::CachedRegistration entry = take_registration(*self.node, view, owner);
  const transport::BulkTarget target{remote.key, remote.offset, view.data(), view.size()};
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
  return_registration(*self.node, std::move(entry), !raised && result.outcome == Outcome::ok);
  if (raised) throw nb::python_error();
  if (result.outcome != Outcome::ok) {
    raise_outcome(self, is_put ? "put" : "get", result.outcome, result.status, result.detail);
  }
}

}  // namespace

void bind_session_memory(nb::class_<SessionHandle>& session) {
  session
      .def("check", check, nb::arg("remote"), nb::arg("operation"), nb::arg("length"),
           "Raises unless the region belongs to the running process of the peer and has this length.")
      .def("read", read, nb::arg("remote"), nb::arg("timeout_s"),
           nb::sig("def read(self, remote: RemoteRegion, timeout_s: float) -> bytes | None"),
           "None: it is longer than a message buffer.")
      .def("write", write, nb::arg("remote"), nb::arg("data"), nb::arg("timeout_s"),
           "False: it is longer than a message buffer.")
      .def(
          "start_read",
          [](SessionHandle& self, const RemoteRegion& remote, QueueHandle& queue, uint64_t token) {
            check(self, remote, "read", 0);
            const auto held = lock_from_python(*self.node);
            check_fits_buffer(self, remote.length);
            return hand_over(self, begin_read(self, remote), queue, token);
          },
          nb::arg("remote"), nb::arg("queue"), nb::arg("token"))
      .def(
          "start_write",
          [](SessionHandle& self, const RemoteRegion& remote, const nb::handle& data, QueueHandle& queue,
             uint64_t token) {
            const BufferView view(data, PyBUF_SIMPLE);
            check(self, remote, "write", view.size());
            const auto held = lock_from_python(*self.node);
            check_fits_buffer(self, view.size());
            return hand_over(self, begin_write(self, remote, view), queue, token);
          },
          nb::arg("remote"), nb::arg("data"), nb::arg("queue"), nb::arg("token"))
      .def("transfer", transfer, nb::arg("is_put"), nb::arg("buffer"), nb::arg("remote"), nb::kw_only(),
           nb::arg("fragment_bytes"), nb::arg("depth"), nb::arg("progress").none(), nb::arg("owner").none(),
           "With an owner of the memory its registration is kept for the next time.");
}

}  // namespace verbena::bind
