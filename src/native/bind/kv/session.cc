// _native.kv: SessionFrontend, which serves a store over sessions, and OneSidedReader, which clients use for
// reads without commands.
// Only converts arguments and releases the GIL; the work is done in kv/frontends and kv/client.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bind/kv/store.h"
#include "bind/transport/transport.h"
#include "kv/client/reader.h"
#include "kv/frontends/session_frontend.h"
#include "util/clock.h"
#include "util/prefetch.h"

namespace verbena::bind {
namespace {

struct SessionFrontendHandle {
  Owned<kv::Engine> engine;
  Owned<kv::EventLoop> loop;
  Owned<kv::SessionFrontend> frontend;
};

struct OneSidedReaderHandle {
  Owned<kv::OneSidedReader> reader;
  std::mutex mutex;  // one thread at a time
};

void make_frontend(SessionFrontendHandle* self, EngineHandle& engine, NodeHandle& node,
                   const AudienceHandle& audience) {
  const auto& shared = node.node.share("serve a store");
  const auto frontend = [&] {
    const Unlocked unlocked;
    return std::make_shared<kv::SessionFrontend>(*engine.engine, *engine.loop, shared, audience.audience);
  };
  new (self) SessionFrontendHandle{engine.engine, engine.loop, Owned(frontend())};
}

nb::dict frontend_counters(SessionFrontendHandle& self) {
  auto held = self.engine->try_lock();
  if (!held) {
    const Unlocked unlocked;
    held.lock();
  }
  nb::dict dict;
  dict["requests"] = self.frontend->requests();
  dict["clients"] = self.frontend->clients();
  dict["memory_leases"] = self.frontend->memory_leases();
  dict["memory_leases_granted"] = self.frontend->memory_leases_granted();
  return dict;
}

// The result for a key that does not exist. None means that the caller must send a command instead.
struct Absent {};
nb::object* absent = nullptr;

nb::object to_object(const kv::OneSidedReader::Answer& reply) {
  if (reply.step == kv::Step::found) return to_bytes(reply.value);
  return reply.step == kv::Step::absent ? *absent : nb::none();
}

// Never waits for the mutex with the GIL held: the holder of the mutex needs the GIL before it unlocks.
std::unique_lock<std::mutex> lock(OneSidedReaderHandle& self) {
  self.reader.share("read a key");
  std::unique_lock held(self.mutex, std::try_to_lock);
  if (!held) {
    const Unlocked unlocked;
    held.lock();
  }
  return held;
}

// Called without the GIL while a read waits.
void check_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::object get_one(OneSidedReaderHandle& self, const nb::bytes& key) {
  const auto held = lock(self);
  kv::OneSidedReader::Answer reply;
  {
    const Unlocked unlocked;
    reply = self.reader->get(view_of(key));
  }
  return to_object(reply);
}

// The bytes of a key, valid as long as the object: a str keeps its own UTF-8.
std::string_view key_of(PyObject* key) {
  if (PyBytes_Check(key)) return {PyBytes_AS_STRING(key), static_cast<size_t>(PyBytes_GET_SIZE(key))};
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
  if (text) return {text, static_cast<size_t>(size)};
  if (PyErr_Occurred()) throw nb::python_error();
  throw nb::type_error("keys must be str or bytes");
}

// Returns the values and the indexes of keys for which the caller must send commands. No Python code runs per
// key, so that the time of a batch is spent on the reads.
nb::tuple get_many(OneSidedReaderHandle& self, nb::handle keys) {
  const nb::object sequence = nb::steal(PySequence_Fast(keys.ptr(), "keys must be iterable"));
  if (!sequence.is_valid()) throw nb::python_error();
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  PyObject* const* const items = PySequence_Fast_ITEMS(sequence.ptr());
  std::vector<nb::object> kept(count);  // another thread may change the list while the GIL is released
  std::vector<std::string_view> names(count);
  constexpr size_t kAhead = 16, kLineBytes = 64;
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      // A short key ends in the second cache line of its object.
      prefetch(items[i + kAhead]);
      prefetch(reinterpret_cast<const std::byte*>(items[i + kAhead]) + kLineBytes);
    }
    kept[i] = nb::borrow(items[i]);
    names[i] = key_of(items[i]);
  }
  const nb::object values = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  nb::list unknown;
  const auto held = lock(self);
  {
    Unlocked unlocked;
    self.reader->get_many(names, [&](size_t first, std::span<const kv::OneSidedReader::Answer> answers) {
      unlocked.enter();
      for (size_t i = 0; i < answers.size(); ++i) {
        const kv::OneSidedReader::Answer& reply = answers[i];
        PyObject* value = nullptr;
        if (reply.step == kv::Step::found) {
          const auto size = static_cast<Py_ssize_t>(reply.value.size());
          value = PyBytes_FromStringAndSize(reply.value.data(), size);  // null: no memory; added to `unknown`
        }
        if (!value) PyErr_Clear();
        if (!value && reply.step != kv::Step::absent) unknown.append(first + i);
        PyList_SET_ITEM(values.ptr(), static_cast<Py_ssize_t>(first + i), value ? value : Py_NewRef(Py_None));
      }
      unlocked.leave();
    });
  }
  return nb::make_tuple(values, unknown);
}

nb::object get_into(OneSidedReaderHandle& self, const nb::bytes& key, nb::handle buffer) {
  const BufferView view = view_of(buffer, "get_into", true);
  kv::OneSidedReader::Length length;
  const auto held = lock(self);
  {
    const Unlocked unlocked;
    length = self.reader->get_into(view_of(key), {view.data(), view.size()});
  }
  if (length.step == kv::Step::found) return nb::int_(length.bytes);
  return length.step == kv::Step::absent ? *absent : nb::none();
}

}  // namespace

void bind_kv_session(nb::module_& m) {
  nb::class_<Absent>(m, "Absent", "The result of a look-up for a key that does not exist.")
      .def("__repr__", [](const Absent&) { return "ABSENT"; });
  absent = new nb::object(nb::cast(Absent{}));
  m.attr("ABSENT") = *absent;

  nb::class_<SessionFrontendHandle>(
      m, "SessionFrontend",
      "Serves the sessions of a node. Keep engine and node alive longer than this object.")
      .def("__init__", make_frontend, nb::arg("engine"), nb::arg("node"), nb::arg("audience"),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def(
          "add_region",
          [](SessionFrontendHandle& self, uint64_t key) {
            const Unlocked unlocked;
            self.frontend->add_region(key);
          },
          nb::arg("key"), "Sets the region key of the engine's next chunk of memory.")
      .def_prop_ro("requests", [](SessionFrontendHandle& self) { return self.frontend->requests(); })
      .def("counters", frontend_counters, nb::sig("def counters(self) -> dict[str, int]"),
           "Returns the calls received, the clients, and the memory leases: now, and all that were granted.");

  nb::class_<OneSidedReaderHandle>(m, "OneSidedReader",
                                   "Reads strings from the memory of a store over a session.")
      .def(
          "__init__",
          [](OneSidedReaderHandle* self, SessionHandle& session, uint32_t database, double timeout_s) {
            const bool is_limited = timeout_s >= 0 && timeout_s <= 1e9;
            new (self) OneSidedReaderHandle{Owned(std::make_shared<kv::OneSidedReader>(
                session.node.share(), session.session.share(), database,
                is_limited ? static_cast<uint64_t>(timeout_s * 1e9) : kNever, check_signals))};
          },
          nb::arg("session"), nb::arg("database") = 0, nb::arg("timeout_s") = -1.0, nb::keep_alive<1, 2>(),
          "`timeout_s`: how long one call may take; negative: no limit.")
      .def(
          "load",
          [](OneSidedReaderHandle& self, const nb::bytes& layout) {
            const auto held = lock(self);
            return self.reader->load(view_of(layout));
          },
          nb::arg("layout"), "Uses the reply to kv.layout. False: it is not valid.")
      .def("get", get_one, nb::arg("key"), nb::sig("def get(self, key: bytes) -> bytes | Absent | None"),
           "Returns the string or ABSENT. None: send the command to the server.")
      .def("get_many", get_many, nb::arg("keys"),
           nb::sig("def get_many(self, keys: collections.abc.Iterable[str | bytes]) -> "
                   "tuple[list[bytes | None], list[int]]"),
           "Returns the strings, None for keys that do not exist, and the indexes of the keys to request "
           "from the server.")
      .def("get_into", get_into, nb::arg("key"), nb::arg("buffer"),
           nb::sig("def get_into(self, key: bytes, buffer: object) -> int | Absent | None"),
           "Returns the length of the string. If it exceeds the buffer, nothing was written.")
      .def_prop_ro(
          "denied", [](OneSidedReaderHandle& self) { return self.reader->is_denied(); },
          "Whether the server refused a read: it has not lent its memory, or not any longer.")
      .def_prop_ro("reads", [](OneSidedReaderHandle& self) { return self.reader->reads(); });
}

}  // namespace verbena::bind
