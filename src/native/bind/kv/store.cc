// _native.kv.Engine: the engine, its event loop, its Python handlers and its counters. Also creates the
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
    if (!PyBytes_Check(argument.ptr())) throw nb::type_error("words must be bytes");
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

PythonCallbacks::PythonCallbacks(kv::Engine& engine, nb::object object)
    : engine_(engine),
      object_(std::move(object)),
      run_(object_.attr("run")),
      opened_(object_.attr("opened")),
      closed_(object_.attr("closed")),
      watched_changed_(object_.attr("watched_changed")),
      notify_(object_.attr("notify")),
      tick_(object_.attr("tick")) {}

PythonCallbacks::~PythonCallbacks() = default;

void PythonCallbacks::enter() {
  if (inside_) return;
  thread_->enter();
  inside_ = true;
}

void PythonCallbacks::release_gil() {
  if (!inside_ || std::this_thread::get_id() != loop_thread_) return;
  inside_ = false;
  thread_->leave();
}

void PythonCallbacks::run(kv::Client& client, kv::Arguments arguments) {
  const size_t before = client.out.size();
  bool answered = false;
  with_gil([&] {
    nb::list argv;
    for (const std::string_view argument : arguments) argv.append(to_bytes(argument));
    run_(client.id, argv);  // writes its reply by Client.reply()
    answered = true;
  });
  if (!answered) {
    client.out.resize(before);
    kv::ReplyWriter(client.out, client.version).error("ERR internal error: the command failed, see the log");
  }
}

void PythonCallbacks::opened(kv::Client& client) {
  with_gil([&] { opened_(client.id); });
}
void PythonCallbacks::closed(kv::Client& client) {
  with_gil([&] { closed_(client.id); });
}
void PythonCallbacks::release(const std::vector<uint64_t>& objects) {
  constexpr uint64_t kBudgetNs = 1'000'000;
  with_gil([&] {
    const uint64_t deadline_ns = now_ns() + kBudgetNs;
    for (const uint64_t object : objects) lazy_free_->take(reinterpret_cast<PyObject*>(object), deadline_ns);
  });
}
void PythonCallbacks::lazy_free(uint64_t deadline_ns) {
  with_gil([&] { lazy_free_->work(deadline_ns); });
}
void PythonCallbacks::watched_changed(const std::vector<uint64_t>& clients) {
  with_gil([&] { watched_changed_(clients); });
}
void PythonCallbacks::notify(uint32_t database, char kind, const char* event, std::string_view key) {
  with_gil([&] { notify_(database, std::string(1, kind), event, to_bytes(key)); });
}
void PythonCallbacks::tick() {
  with_gil([&] { tick_(); });
}

bool PythonCallbacks::dump(uint64_t object, std::string& bytes) {
  bool done = false;
  with_gil([&] {
    const nb::object dumped = object_.attr("dump")(nb::borrow(reinterpret_cast<PyObject*>(object)));
    bytes = view_of(nb::cast<nb::bytes>(dumped));
    done = true;
  });
  return done;
}

EngineHandle::EngineHandle(uint32_t databases, nb::object allocate_chunk)
    : engine(std::make_shared<kv::Engine>(databases, chunk_allocator_of(std::move(allocate_chunk)))),
      loop(std::make_shared<kv::EventLoop>(*engine)) {
  engine->refresh_time();
}

EngineHandle::~EngineHandle() {
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

nb::dict counters(EngineHandle& self) {
  const auto held = self.lock();
  const kv::Engine& engine = *self.engine;
  const kv::KeyspaceCounters& keys = engine.keyspace.counters;
  const kv::EngineCounters& all = engine.counters;
  nb::dict dict;
  dict["commands"] = all.commands;
  dict["python_commands"] = all.program_commands;
  dict["connections"] = all.connections;
  dict["rejected_connections"] = all.rejected_connections;
  dict["clients"] = engine.clients().size();
  dict["errors"] = all.errors;
  dict["input_disconnections"] = all.input_disconnections;
  dict["output_disconnections"] = all.output_disconnections;
  dict["bytes_in"] = all.bytes_in;
  dict["bytes_out"] = all.bytes_out;
  dict["recent_input_bytes"] = all.input_bytes.value();
  dict["recent_output_bytes"] = all.output_bytes.value();
  dict["hits"] = keys.hits;
  dict["misses"] = keys.misses;
  dict["expired"] = keys.expired;
  dict["evicted"] = keys.evicted;
  dict["dirty"] = keys.dirty;
  dict["tracked_keys"] = engine.tracking.keys();
  dict["tracked_items"] = engine.tracking.items();
  dict["tracked_prefixes"] = engine.tracking.prefixes();
  dict["longest_tick_ns"] = all.longest_tick_ns;
  dict["used_bytes"] = self.engine->keyspace.used_bytes();
  dict["object_bytes"] = self.engine->keyspace.object_bytes();
  dict["retired_blocks"] = self.engine->keyspace.retired();
  const LazyFree none, &lazy_free = self.callbacks ? self.callbacks->lazy_free() : none;
  dict["lazy_free_values"] = lazy_free.values();
  dict["lazy_free_elements"] = lazy_free.waiting();
  dict["lazy_freed_values"] = lazy_free.freed();
  dict["lazy_freed_elements"] = lazy_free.freed_elements();
  dict["reads"] = all.reads;
  dict["writes"] = all.writes;
  dict["chunk_bytes"] = self.engine->keyspace.arena().chunk_bytes();
  return dict;
}

nb::dict command_counters(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const kv::NativeCommand& command : self.engine->commands.all()) {
    dict[std::string(command.name).c_str()] =
        nb::make_tuple(command.calls, command.ns, command.rejected, command.failed,
                       std::vector<uint64_t>(command.buckets.begin(), command.buckets.end()));
  }
  return dict;
}

nb::dict error_counters(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const auto& [code, count] : self.engine->errors) dict[nb::str(code.data(), code.size())] = count;
  return dict;
}

void reset_counters(EngineHandle& self) {
  const auto held = self.lock();
  self.engine->counters = {};
  self.engine->keyspace.counters = {.dirty = self.engine->keyspace.counters.dirty};
  for (kv::NativeCommand& command : self.engine->commands.all()) {
    command.calls = command.ns = command.rejected = command.failed = 0;
    command.buckets = {};
  }
  self.engine->errors.clear();
}

nb::list take_slow(EngineHandle& self) {
  const auto held = self.lock();
  nb::list list;
  for (const kv::Engine::Slow& slow : self.engine->take_slow()) {
    nb::list arguments;
    for (const std::string& argument : slow.arguments) arguments.append(to_bytes(argument));
    list.append(nb::make_tuple(slow.client, slow.ns, slow.unix_ms, arguments));
  }
  return list;
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
  bind_kv_rdma(m);
  bind_kv_log(m);
  bind_kv_cluster(m, engine);
  bind_kv_backlog(m, engine);
  bind_kv_commands(m);
  bind_kv_base_copy(m);
  bind_kv_envelope(m);
  bind_kv_replication(m);
  bind_kv_tracking(engine);

  engine
      .def(nb::init<uint32_t, nb::object>(), nb::arg("databases") = 16, nb::arg("memory").none() = nb::none(),
           "`memory`: a function that gives a writable buffer of so many bytes, or None for the process's "
           "own.")
      .def("set_handler", set_handler, nb::arg("handler").none(),
           "Who answers what native code does not; None, while it does not run: nobody, and it is let go.")
      .def("run", run_loop, "Serves until stop(), on the thread that calls it.")
      .def(
          "stop", [](EngineHandle& self) { self.loop->stop(); }, "From any thread.")
      .def("post", post, nb::arg("function"), "Calls it on the loop's thread, between commands.")
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
          "Takes clients from a listening socket, of which it keeps a duplicate; with a certificate: by TLS.")
      .def("stop_listening",
           [](EngineHandle& self) {
             const Unlocked unlocked;
             self.loop->stop_listening();
           })
      .def(
          "set_timer", [](EngineHandle& self, uint64_t unix_ms) { self.loop->set_timer(unix_ms); },
          nb::arg("unix_ms"), "The program's tick() is called then; 0: only from time to time.")
      .def(
          "busy_poll", [](EngineHandle& self, uint64_t ns) { self.loop->busy_poll_ns = ns; }, nb::arg("ns"),
          "How long the loop looks for more to do before it sleeps.")
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
          "How clients that connect from now on are treated.")
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
          "Evicts if need be; False: commands that need memory must be refused.")
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
      .def("counters", counters, nb::sig("def counters(self) -> dict[str, int]"))
      .def("command_counters", command_counters,
           nb::sig("def command_counters(self) -> dict[str, tuple[int, int, int, int, list[int]]]"),
           "(calls, nanoseconds, rejected, failed, calls by the time they took) of each native command.")
      .def("error_counters", error_counters, nb::sig("def error_counters(self) -> dict[str, int]"),
           "How often native code answered with which code.")
      .def("count_output_disconnection",
           [](EngineHandle& self) {
             const auto held = self.lock();
             ++self.engine->counters.output_disconnections;
           })
      .def("reset_counters", reset_counters)
      .def("take_slow", take_slow, nb::sig("def take_slow(self) -> list[tuple[int, int, int, list[bytes]]]"),
           "(client, ns, unix_ms, words) of native commands that took long.")
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
          "The longest word of a request, and how much of a client's may wait.")
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
          "A replica's: what has expired is not found, but stays until the primary deletes it.")
      .def_prop_rw("loading", getter<&kv::Engine::loading>(), setter<&kv::Engine::loading, bool>())
      .def_prop_ro(
          "refusal",
          [](EngineHandle& self) {
            const auto held = self.lock();
            return std::string(self.engine->refusal());
          },
          "Why commands that change something are refused now; empty: they are not.")
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
