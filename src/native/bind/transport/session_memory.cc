// Binds a session's access to its peer's memory: reads and writes that fit into a message buffer, and bulk
// transfers of any size.
#include <nanobind/stl/string.h>

#include "bind/errors.h"
#include "bind/transport/session.h"
#include "bind/verbs/remote.h"
#include "bind/verbs/waiting.h"
#include "transport/session/bulk.h"

namespace verbena::bind {

using transport::Node;
using transport::Operation;
using transport::Outcome;

const RemoteRegion& remote_of(const nb::handle& remote, const char* operation) {
  RemoteRegion* found = nullptr;
  if (!nb::try_cast<RemoteRegion*>(remote, found) || !found) [[unlikely]] {
    const std::string kind = Py_TYPE(remote.ptr())->tp_name;
    throw nb::type_error((operation + (": remote is " + kind) + ", not a RemoteRegion").c_str());
  }
  return *found;
}

void check_remote(const SessionHandle& self, const RemoteRegion& remote, const char* operation,
                  uint64_t length) {
  self.use(operation);
  if (remote.epoch != self.peer_epoch) [[unlikely]] {
    raise_setup(self, "region_denied", operation,
                "the region belongs to an earlier run of the peer, or to another node");
  }
  if (length > remote.length) [[unlikely]] {
    raise_setup(self, "out_of_range", operation,
                std::to_string(length) + " bytes in a region of " + std::to_string(remote.length));
  }
}

transport::CachedRegistration take_registration(Node& node, const LocalMemory& local,
                                                const nb::handle& owner) {
  const uint32_t access = local.readonly ? 0 : access::local_write;
  const bool keeps = !owner.is_none() && local.size <= node.registrations().max_bytes();
  transport::CachedRegistration entry;
  if (keeps) {
    const auto held = lock_from_python(node);
    entry = node.registrations().take(local.data, local.size, access);
  }
  if (!entry.memory) {
    if (keeps) entry.owner = std::make_unique<BufferOwner>(BufferView(owner, PyBUF_FULL_RO));
    entry.memory = std::make_unique<transport::Registration>(local.data, local.size, access,
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

namespace {

// A READ into `local`, or into the operation's answer if it is null.
Operation* begin_read(SessionHandle& self, const RemoteRegion& remote, std::byte* local, uint64_t length) {
  return self.session->operate(Opcode::read, remote.key, remote.offset, local, static_cast<uint32_t>(length),
                               nullptr);
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

// Runs an operation whose result is in the caller's memory. False: `length` does not fit into a message
// buffer.
template <typename Begin>
bool run_short(SessionHandle& self, uint64_t length, const char* operation, double timeout_s, Begin begin) {
  transport::Session& session = self.use(operation);
  Node& node = *self.node.core();
  Operation* begun;
  {
    const auto held = lock_from_python(node);
    if (length > session.buffer_bytes()) return false;
    begun = begin();
    if (begun && node.spin_for_reply(*begun)) {
      node.operations().end(*begun);
      return true;
    }
  }
  if (!begun) raise_refused(self, operation);
  finish_call(self, *begun, operation, timeout_s);
  return true;
}

// A bytes object that native code fills before anyone else has a reference to it.
nb::object new_bytes(uint64_t length) {
  nb::object made = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(length)));
  if (!made) throw nb::python_error();
  return made;
}

std::byte* data_of(const nb::object& bytes) {
  return reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes.ptr()));
}

// Returns None if the region is longer than a message buffer: then use the bulk form.
nb::object read(SessionHandle& self, const nb::handle& region, double timeout_s) {
  const RemoteRegion& remote = remote_of(region, "read");
  check_remote(self, remote, "read", 0);
  if (remote.length == 0) return new_bytes(0);
  nb::object bytes;
  const bool fits = run_short(self, remote.length, "read", timeout_s, [&] {
    bytes = new_bytes(remote.length);
    return begin_read(self, remote, data_of(bytes), remote.length);
  });
  return fits ? bytes : nb::none();
}

// Returns False if the buffer is longer than a message buffer: then use the bulk form.
bool read_into(SessionHandle& self, const nb::handle& region, const nb::handle& buffer, double timeout_s) {
  const RemoteRegion& remote = remote_of(region, "read_into");
  const BufferView view = view_of(buffer, "read_into", true);
  check_remote(self, remote, "read_into", view.size());
  if (view.size() == 0) return true;
  return run_short(self, view.size(), "read_into", timeout_s,
                   [&] { return begin_read(self, remote, view.data(), view.size()); });
}

// As read_into().
bool write(SessionHandle& self, const nb::handle& region, const nb::handle& buffer, double timeout_s) {
  const RemoteRegion& remote = remote_of(region, "write");
  const BufferView view = view_of(buffer, "write", false);
  check_remote(self, remote, "write", view.size());
  return run_short(self, view.size(), "write", timeout_s, [&] { return begin_write(self, remote, view); });
}

using Progress = std::atomic<uint64_t>;

struct TransferOptions {
  double timeout_s;
  uint32_t fragment_bytes, depth;
};

void run_transfer(SessionHandle& self, bool is_write, const char* operation, const LocalMemory& local,
                  const RemoteRegion& remote, const TransferOptions& options, const nb::object& progress,
                  const nb::handle& owner) {
  check_remote(self, remote, operation, local.size);
  transport::CachedRegistration entry = take_registration(*self.node, local, owner);
  const transport::BulkTarget target{remote.key, remote.offset, local.data, local.size};
  const transport::BulkOptions bulk{options.fragment_bytes, options.depth, deadline_after(options.timeout_s)};
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
    result = (is_write ? transport::put : transport::get)(*self.node, *self.session, target, bulk,
                                                          *entry.memory, acknowledged, keep_going);
  }
  const bool is_whole = !raised && !result.timed_out && result.outcome == Outcome::ok;
  return_registration(*self.node, std::move(entry), is_whole);
  if (raised) throw nb::python_error();
  if (result.outcome != Outcome::ok) {
    raise_outcome(self, operation, result.outcome, result.status, result.detail);
  }
  if (result.timed_out) {
    raise_setup(self, "call_timeout", operation,
                std::to_string(acknowledged.load()) + " of " + std::to_string(local.size) +
                    " bytes were transferred in time");
  }
}

void transfer(SessionHandle& self, bool is_write, const nb::handle& buffer, const nb::handle& region,
              double timeout_s, uint32_t fragment_bytes, uint32_t depth, const nb::object& progress,
              const nb::handle& owner) {
  const char* operation = is_write ? "write" : "read_into";
  const RemoteRegion& remote = remote_of(region, operation);
  const BufferView view = view_of(buffer, operation, !is_write);
  run_transfer(self, is_write, operation, {view.data(), view.size(), view.readonly()}, remote,
               {timeout_s, fragment_bytes, depth}, progress, owner);
}

nb::object read_long(SessionHandle& self, const nb::handle& region, double timeout_s, uint32_t fragment_bytes,
                     uint32_t depth, const nb::object& progress) {
  const RemoteRegion& remote = remote_of(region, "read");
  check_remote(self, remote, "read", 0);
  nb::object bytes = new_bytes(remote.length);
  run_transfer(self, false, "read", {data_of(bytes), remote.length, false}, remote,
               {timeout_s, fragment_bytes, depth}, progress, nb::none());
  return bytes;
}

}  // namespace

void bind_session_memory(nb::class_<SessionHandle>& session) {
  session
      .def("check", check_remote, nb::arg("remote"), nb::arg("operation"), nb::arg("length"),
           "Raises unless the region belongs to the running process of the peer and has this length.")
      .def("read", read, nb::arg("remote"), nb::arg("timeout_s"),
           nb::sig("def read(self, remote: RemoteRegion, timeout_s: float) -> bytes | None"),
           "None: it is longer than a message buffer.")
      .def("read_into", read_into, nb::arg("remote"), nb::arg("buffer"), nb::arg("timeout_s"),
           nb::sig("def read_into(self, remote: RemoteRegion, buffer: object, timeout_s: float) -> bool"),
           "False: it is longer than a message buffer.")
      .def("write", write, nb::arg("remote"), nb::arg("buffer"), nb::arg("timeout_s"),
           nb::sig("def write(self, remote: RemoteRegion, buffer: object, timeout_s: float) -> bool"),
           "False: it is longer than a message buffer.")
      .def(
          "start_read",
          [](SessionHandle& self, const nb::handle& region, QueueHandle& queue, uint64_t token) {
            const RemoteRegion& remote = remote_of(region, "read");
            check_remote(self, remote, "read", 0);
            const auto held = lock_from_python(*self.node);
            check_fits_buffer(self, remote.length);
            return hand_over(self, begin_read(self, remote, nullptr, remote.length), queue, token);
          },
          nb::arg("remote"), nb::arg("queue"), nb::arg("token"),
          nb::sig("def start_read(self, remote: RemoteRegion, queue: EventQueue, token: int) -> int"))
      .def(
          "start_read_into",
          [](SessionHandle& self, const nb::handle& region, const nb::handle& buffer, QueueHandle& queue,
             uint64_t token) {
            const RemoteRegion& remote = remote_of(region, "read_into");
            const BufferView view = view_of(buffer, "read_into", true);
            check_remote(self, remote, "read_into", view.size());
            const auto held = lock_from_python(*self.node);
            check_fits_buffer(self, view.size());
            return hand_over(self, begin_read(self, remote, view.data(), view.size()), queue, token);
          },
          nb::arg("remote"), nb::arg("buffer"), nb::arg("queue"), nb::arg("token"),
          nb::sig("def start_read_into(self, remote: RemoteRegion, buffer: object, queue: EventQueue, "
                  "token: int) -> int"),
          "The caller keeps a view of the buffer until the operation has ended or cancel() has returned.")
      .def(
          "start_write",
          [](SessionHandle& self, const nb::handle& region, const nb::handle& buffer, QueueHandle& queue,
             uint64_t token) {
            const RemoteRegion& remote = remote_of(region, "write");
            const BufferView view = view_of(buffer, "write", false);
            check_remote(self, remote, "write", view.size());
            const auto held = lock_from_python(*self.node);
            check_fits_buffer(self, view.size());
            return hand_over(self, begin_write(self, remote, view), queue, token);
          },
          nb::arg("remote"), nb::arg("buffer"), nb::arg("queue"), nb::arg("token"),
          nb::sig("def start_write(self, remote: RemoteRegion, buffer: object, queue: EventQueue, "
                  "token: int) -> int"))
      .def("transfer", transfer, nb::arg("is_write"), nb::arg("buffer"), nb::arg("remote"), nb::kw_only(),
           nb::arg("timeout_s"), nb::arg("fragment_bytes"), nb::arg("depth"), nb::arg("progress").none(),
           nb::arg("owner").none(),
           nb::sig("def transfer(self, is_write: bool, buffer: object, remote: RemoteRegion, *, "
                   "timeout_s: float, fragment_bytes: int, depth: int, progress: object | None, "
                   "owner: object | None) -> None"),
           "With an owner of the memory its registration is kept for the next time.")
      .def("read_long", read_long, nb::arg("remote"), nb::kw_only(), nb::arg("timeout_s"),
           nb::arg("fragment_bytes"), nb::arg("depth"), nb::arg("progress").none(),
           nb::sig("def read_long(self, remote: RemoteRegion, *, timeout_s: float, fragment_bytes: int, "
                   "depth: int, progress: object | None) -> bytes"),
           "A region of any length.");
  session.def(
      "region_length",
      [](SessionHandle& self, const nb::handle& region, const char* operation) {
        const RemoteRegion& remote = remote_of(region, operation);
        check_remote(self, remote, operation, 0);
        return remote.length;
      },
      nb::arg("remote"), nb::arg("operation"),
      nb::sig("def region_length(self, remote: RemoteRegion, operation: str) -> int"),
      "The length of a region that belongs to the running process of the peer; raises for others.");
  session.def_static(
      "buffer_length",
      [](const nb::handle& buffer, const char* operation, bool writable) {
        return view_of(buffer, operation, writable).size();
      },
      nb::arg("buffer"), nb::arg("operation"), nb::arg("writable"),
      nb::sig("def buffer_length(buffer: object, operation: str, writable: bool) -> int"),
      "The length in bytes of a contiguous buffer; raises an error that names the argument for others.");
}

}  // namespace verbena::bind
