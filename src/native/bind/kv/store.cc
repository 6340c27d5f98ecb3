// _native.kv.Engine: the engine, its event loop, its memory and its settings. Also creates the
// submodule and binds its other parts.
#include "bind/kv/store.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include "bind/bind.h"
#include "bind/kv/replies.h"
#include "util/error.h"

namespace verbena::bind {

std::vector<std::string_view> arguments_of(nb::handle sequence) {
  std::vector<std::string_view> arguments;
  for (const nb::handle argument : nb::borrow<nb::iterable>(sequence)) {
    if (!PyBytes_Check(argument.ptr())) throw nb::type_error("arguments must be bytes");
    arguments.emplace_back(PyBytes_AS_STRING(argument.ptr()),
                           static_cast<size_t>(PyBytes_GET_SIZE(argument.ptr())));
  }
  return arguments;
}

namespace {

// Uses large pages where the system has them: otherwise a growing store spends most of its time on page
// faults.
kv::ChunkMemory map_memory(size_t bytes) {
  constexpr size_t kLargePage = 2u << 20;
  const size_t mapped = bytes + kLargePage;
  void* data =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw Error("no_memory", "store a value", "mmap() failed", errno);
  auto* const first = static_cast<std::byte*>(data) + -reinterpret_cast<uintptr_t>(data) % kLargePage;
  ::madvise(first, bytes, MADV_HUGEPAGE);
  return {first, bytes, std::shared_ptr<void>(data, [mapped](void* all) { ::munmap(all, mapped); })};
}

// Returns an allocator that calls a Python function, which may return a region that peers may read. None:
// plain memory.
kv::Arena::ChunkAllocator chunk_allocator_of(nb::object function) {
  if (function.is_none()) return map_memory;
  auto* kept = new nb::object(std::move(function));
  const std::shared_ptr<nb::object> shared(kept, [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  return [shared](size_t bytes) -> kv::ChunkMemory {
    const nb::gil_scoped_acquire gil;
    try {
      auto view = std::make_unique<BufferView>((*shared)(bytes), PyBUF_WRITABLE);
      const kv::ChunkMemory memory{view->data(), view->size(), nullptr};
      return {memory.data, memory.length, std::shared_ptr<void>(view.release(), [](void* held) {
                const nb::gil_scoped_acquire again;
                delete static_cast<BufferView*>(held);
              })};
    } catch (nb::python_error& error) {
      throw Error("no_memory", "store a value", error.what());
    }
  };
}

}  // namespace

EngineHandle::EngineHandle(uint32_t databases, nb::object allocate_chunk)
    : engine(std::make_shared<kv::Engine>(databases, chunk_allocator_of(std::move(allocate_chunk)))),
      loop(std::make_shared<kv::EventLoop>(*engine)) {
  engine->refresh_time();
}

EngineHandle::~EngineHandle() {
  if (engine.is_inherited()) {
    callbacks.release();  // leaked, as engine and loop are: see bind/handle.h
    return;
  }
  loop.reset();
  // Drops the references to Python values here, where the GIL is held.
  for (uint32_t i = 0; i < engine->keyspace.databases(); ++i) {
    if (!engine->keyspace.exists(i)) continue;
    uint64_t cursor = 0;
    do {
      cursor = engine->keyspace.database(i).scan(cursor, 1024, [](kv::Entry entry) {
        if (entry.type() != kv::Type::string) Py_DECREF(reinterpret_cast<PyObject*>(entry.object()));
      });
    } while (cursor != 0);
  }
  for (const uint64_t object : engine->keyspace.take_released()) {
    Py_DECREF(reinterpret_cast<PyObject*>(object));
  }
}

namespace {

void run_loop(EngineHandle& self) {
  Unlocked unlocked;
  if (self.callbacks) self.callbacks->set_thread(&unlocked);
  self.loop->run();
  if (self.callbacks) {
    self.callbacks->release_gil();
    self.callbacks->set_thread(nullptr);
  }
}

void set_handler(EngineHandle& self, nb::object object) {
  // The former handler is destroyed after the lock is released, because destroying Python objects can run any
  // code.
  std::unique_ptr<PythonCallbacks> former, next;
  if (!object.is_none()) next = std::make_unique<PythonCallbacks>(*self.engine, std::move(object));
  const auto held = self.lock();
  self.engine->set_handler(next.get());
  former = std::exchange(self.callbacks, std::move(next));
}

void post(EngineHandle& self, nb::object function) {
  // The function is destroyed within with_gil(), where it is called, so with the GIL.
  auto* kept = new nb::object(std::move(function));
  self.loop->post([&self, kept] {
    self.callbacks->with_gil([&] {
      const std::unique_ptr<nb::object> owned(kept);
      (*owned)();
    });
  });
}

std::vector<uint64_t> client_ids(EngineHandle& self) {
  const auto held = self.lock();
  std::vector<uint64_t> ids;
  for (const auto& [id, client] : self.engine->clients()) ids.push_back(id);
  return ids;
}

template <auto Member>
auto getter() {
  return [](EngineHandle& self) {
    const auto held = self.lock();
    return (*self.engine).*Member;
  };
}
template <auto Member, typename Value>
auto setter() {
  return [](EngineHandle& self, Value value) {
    const auto held = self.lock();
    (*self.engine).*Member = std::move(value);
  };
}

}  // namespace

void bind_kv(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("kv", "The store's engine.");
  bind_kv_replies(m);
  nb::class_<EngineHandle> engine(m, "Engine",
                                  "The keyspace, its native commands, and the loop that serves clients.");
  bind_kv_client(m);
  bind_kv_list(m);
  bind_kv_database(m);
  bind_kv_session(m);
  bind_kv_stream(m);
  bind_kv_reply_buffer(m);
  bind_kv_rdma(m);
  bind_kv_log(m);
  bind_kv_cluster(m, engine);
  bind_kv_backlog(m, engine);
  bind_kv_commands(m, engine);
  bind_kv_base_copy(m);
  bind_kv_envelope(m);
  bind_kv_replication(m);
  bind_kv_tracking(engine);

  engine
      .def(nb::init<uint32_t, nb::object>(), nb::arg("databases") = 16, nb::arg("memory").none() = nb::none(),
           "`memory`: a function that returns a writable buffer of the given length. None: the process's own "
           "memory.")
      .def("set_handler", set_handler, nb::arg("handler").none(),
           "Sets the object that runs commands which are not native. None: there is none, and the former is "
           "released; only while the loop does not run.")
      .def("run", run_loop, "Serves clients on the calling thread until stop().")
      .def(
          "stop", [](EngineHandle& self) { self.loop->stop(); }, "Ends run(). Any thread may call it.")
      .def("post", post, nb::arg("function"), "Calls the function on the loop's thread, between commands.")
      .def(
          "listen",
          [](EngineHandle& self, int fd, const std::string& certificate, const std::string& key,
             const std::string& authority, bool require_client_certificate) {
            UniqueFd socket(::dup(fd));
            std::shared_ptr<net::TlsContext> tls;
            if (!certificate.empty()) {
              tls = net::make_tls_context({.certificate = certificate,
                                           .key = key.empty() ? certificate : key,
                                           .authority = require_client_certificate ? authority : "",
                                           .require_peer_certificate = require_client_certificate,
                                           .protocol = ""});
            }
            const Unlocked unlocked;
            self.loop->listen(std::move(socket), std::move(tls));
          },
          nb::arg("fd"), nb::kw_only(), nb::arg("certificate") = "", nb::arg("key") = "",
          nb::arg("authority") = "", nb::arg("require_client_certificate") = false,
          "Accepts clients from a listening socket, of which it keeps a duplicate. With a certificate, "
          "clients "
          "must use TLS.")
      .def("stop_listening",
           [](EngineHandle& self) {
             const Unlocked unlocked;
             self.loop->stop_listening();
           })
      .def(
          "set_timer", [](EngineHandle& self, uint64_t unix_ms) { self.loop->set_timer(unix_ms); },
          nb::arg("unix_ms"), "Sets when the handler's tick() is called next. 0: only periodically.")
      .def(
          "busy_poll", [](EngineHandle& self, uint64_t ns) { self.loop->busy_poll_ns = ns; }, nb::arg("ns"),
          "Sets how long the loop polls before it sleeps.")
      .def(
          "set_new_client_defaults",
          [](EngineHandle& self, bool python_dispatch, bool unauthenticated, bool is_protected,
             size_t max_clients, size_t out_limit) {
            const auto held = self.lock();
            self.loop->new_client_python_dispatch = python_dispatch;
            self.loop->new_client_unauthenticated = unauthenticated;
            self.loop->is_protected = is_protected;
            self.loop->max_clients = max_clients;
            self.loop->new_client_out_limit = out_limit;
          },
          nb::kw_only(), nb::arg("python_dispatch"), nb::arg("unauthenticated"), nb::arg("protected"),
          nb::arg("max_clients"), nb::arg("out_limit") = 0,
          "Sets the flags and limits of clients that connect later.")
      .def(
          "database",
          [](EngineHandle& self, uint32_t number) {
            if (number >= self.engine->keyspace.databases()) throw nb::index_error();
            return DatabaseHandle{&self, number};
          },
          nb::arg("number"), nb::keep_alive<0, 1>())
      .def(
          "client", [](EngineHandle& self, uint64_t id) { return ClientHandle{&self, id}; }, nb::arg("id"),
          nb::keep_alive<0, 1>())
      .def_prop_ro("client_ids", client_ids)
      .def(
          "swap",
          [](EngineHandle& self, uint32_t one, uint32_t other) {
            const auto held = self.lock();
            self.engine->keyspace.swap(one, other);
          },
          nb::arg("one"), nb::arg("other"))
      .def(
          "log",
          [](EngineHandle& self, uint32_t database, nb::handle effect) {
            const auto held = self.lock();
            const auto arguments = arguments_of(effect);
            self.engine->keyspace.log(database, arguments);
          },
          nb::arg("database"), nb::arg("effect"), "Writes an effect into the log, if there is one.")
      .def(
          "make_room",
          [](EngineHandle& self) {
            const auto held = self.lock();
            return self.engine->keyspace.make_room();
          },
          "Evicts keys if memory is over its limit. False: commands that need memory must be refused.")
      .def(
          "unwatch",
          [](EngineHandle& self, uint64_t client) {
            const auto held = self.lock();
            self.engine->keyspace.unwatch(client);
          },
          nb::arg("client"))
      .def_prop_ro("now_ms", [](EngineHandle& self) { return self.engine->keyspace.now_ms(); })
      .def("refresh_time",
           [](EngineHandle& self) {
             const auto held = self.lock();
             self.engine->refresh_time();
           })
      .def_prop_rw("python_dispatch", getter<&kv::Engine::python_dispatch>(),
                   setter<&kv::Engine::python_dispatch, bool>())
      .def_prop_rw(
          "notifications", [](EngineHandle& self) { return self.engine->notifications(); },
          [](EngineHandle& self, bool wanted) {
            const auto held = self.lock();
            self.engine->set_notifications(wanted);
          })
      .def_prop_rw("active_expiry", getter<&kv::Engine::active_expiry>(),
                   setter<&kv::Engine::active_expiry, bool>())
      .def(
          "limit_requests",
          [](EngineHandle& self, size_t argument_bytes, size_t buffer_bytes) {
            const auto held = self.lock();
            self.engine->limits.argument_bytes = argument_bytes;
            self.engine->max_input_bytes = buffer_bytes;
          },
          nb::kw_only(), nb::arg("argument_bytes"), nb::arg("buffer_bytes"),
          "Sets the longest argument of a request and the longest input that may wait for one client.")
      .def_prop_rw("slow_ns", getter<&kv::Engine::slow_ns>(), setter<&kv::Engine::slow_ns, uint64_t>())
      .def_prop_rw(
          "keeps_expired",
          [](EngineHandle& self) {
            const auto held = self.lock();
            return self.engine->keyspace.keeps_expired;
          },
          [](EngineHandle& self, bool keeps) {
            const auto held = self.lock();
            self.engine->keyspace.keeps_expired = keeps;
          },
          "Set on a replica: expired keys are not found, but stay until the primary deletes them.")
      .def_prop_rw("loading", getter<&kv::Engine::loading>(), setter<&kv::Engine::loading, bool>())
      .def_prop_ro(
          "refusal",
          [](EngineHandle& self) {
            const auto held = self.lock();
            return std::string(self.engine->refusal());
          },
          "The error reply for commands that write. Empty: writes are accepted.")
      .def_prop_rw("refuse_writes", getter<&kv::Engine::refuse_writes>(),
                   setter<&kv::Engine::refuse_writes, std::string>())
      .def(
          "limit_memory",
          [](EngineHandle& self, uint64_t bytes, int policy, uint32_t samples) {
            const auto held = self.lock();
            self.engine->keyspace.max_bytes = bytes;
            self.engine->keyspace.eviction = static_cast<kv::Eviction>(policy);
            self.engine->keyspace.samples = samples;
          },
          nb::kw_only(), nb::arg("bytes"), nb::arg("policy"), nb::arg("samples"));
}

}  // namespace verbena::bind
