// _native.kv: the store's engine, its program in Python, and figures.
#include "bind/kv/store.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include "bind/bind.h"
#include "bind/kv/replies.h"
#include "util/error.h"

namespace verbena::bind {

std::vector<std::string_view> words_of(nb::handle sequence) {
  std::vector<std::string_view> words;
  for (const nb::handle word : nb::borrow<nb::iterable>(sequence)) {
    if (!PyBytes_Check(word.ptr())) throw nb::type_error("words must be bytes");
    words.emplace_back(PyBytes_AS_STRING(word.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(word.ptr())));
  }
  return words;
}

namespace {

// In large pages where the system has them: a store that grows would else spend most of its time on faults.
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

// Memory that a function of Python's finds, such as a region that peers may read.
kv::Arena::Source source_of(nb::object function) {
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

PythonProgram::PythonProgram(kv::Engine& engine, nb::object object)
    : engine_(engine),
      object_(std::move(object)),
      run_(object_.attr("run")),
      opened_(object_.attr("opened")),
      closed_(object_.attr("closed")),
      disturbed_(object_.attr("disturbed")),
      notify_(object_.attr("notify")),
      tick_(object_.attr("tick")) {}

PythonProgram::~PythonProgram() = default;

void PythonProgram::enter() {
  if (inside_) return;
  thread_->enter();
  inside_ = true;
}

void PythonProgram::rest() {
  if (!inside_ || std::this_thread::get_id() != loop_thread_) return;
  inside_ = false;
  thread_->leave();
}

void PythonProgram::run(kv::Client& client, kv::Arguments words) {
  const size_t before = client.out.size();
  bool answered = false;
  with_gil([&] {
    nb::list argv;
    for (const std::string_view word : words) argv.append(to_bytes(word));
    const nb::object reply = run_(client.id, argv);
    if (client.out.size() == before && reply.is_none()) return (void)(answered = true);
    answered = true;
  });
  if (!answered) {
    client.out.resize(before);
    kv::ReplyWriter(client.out, client.version).error("ERR internal error: the command failed, see the log");
  }
}

void PythonProgram::opened(kv::Client& client) {
  with_gil([&] { opened_(client.id); });
}
void PythonProgram::closed(kv::Client& client) {
  with_gil([&] { closed_(client.id); });
}
void PythonProgram::release(const std::vector<uint64_t>& objects) {
  constexpr uint64_t kBudgetNs = 1'000'000;
  with_gil([&] {
    const uint64_t deadline_ns = now_ns() + kBudgetNs;
    for (const uint64_t object : objects) graves_->take(reinterpret_cast<PyObject*>(object), deadline_ns);
  });
}
void PythonProgram::bury(uint64_t deadline_ns) {
  with_gil([&] { graves_->work(deadline_ns); });
}
void PythonProgram::disturbed(const std::vector<uint64_t>& clients) {
  with_gil([&] { disturbed_(clients); });
}
void PythonProgram::notify(uint32_t database, char kind, const char* event, std::string_view key) {
  with_gil([&] { notify_(database, std::string(1, kind), event, to_bytes(key)); });
}
void PythonProgram::tick() {
  with_gil([&] { tick_(); });
}

bool PythonProgram::dump(uint64_t object, std::string& bytes) {
  bool done = false;
  with_gil([&] {
    const nb::object dumped = object_.attr("dump")(nb::borrow(reinterpret_cast<PyObject*>(object)));
    bytes = view_of(nb::cast<nb::bytes>(dumped));
    done = true;
  });
  return done;
}

EngineHandle::EngineHandle(uint32_t databases, nb::object source)
    : engine(std::make_shared<kv::Engine>(databases, source_of(std::move(source)))),
      loop(std::make_shared<kv::EventLoop>(*engine)) {
  engine->refresh_time();
}

EngineHandle::~EngineHandle() {
  loop.reset();
  // Values of Python's go with the GIL held, as it is here.
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

void run(EngineHandle& self) {
  Unlocked unlocked;
  if (self.program) self.program->set_thread(&unlocked);
  self.loop->run();
  if (self.program) {
    self.program->rest();
    self.program->set_thread(nullptr);
  }
}

void set_program(EngineHandle& self, nb::object object) {
  // What it held goes when the lock has been given back: objects of Python's may do anything then.
  std::unique_ptr<PythonProgram> former, next;
  if (!object.is_none()) next = std::make_unique<PythonProgram>(*self.engine, std::move(object));
  const auto held = self.lock();
  self.engine->set_program(next.get());
  former = std::exchange(self.program, std::move(next));
}

void post(EngineHandle& self, nb::object function) {
  // Both ends hold the GIL: it is destroyed where it was called.
  auto* kept = new nb::object(std::move(function));
  self.loop->post([&self, kept] {
    self.program->with_gil([&] {
      const std::unique_ptr<nb::object> owned(kept);
      (*owned)();
    });
  });
}

nb::dict figures(EngineHandle& self) {
  const auto held = self.lock();
  const kv::Engine& engine = *self.engine;
  const kv::KeyspaceFigures& keys = engine.keyspace.figures;
  const kv::EngineFigures& all = engine.figures;
  nb::dict dict;
  dict["commands"] = all.commands;
  dict["program_commands"] = all.program_commands;
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
  dict["rubbish"] = self.engine->keyspace.rubbish();
  const Graves none, &graves = self.program ? self.program->graves() : none;
  dict["graves"] = graves.values();
  dict["unburied"] = graves.waiting();
  dict["buried"] = graves.freed();
  dict["buried_elements"] = graves.freed_elements();
  dict["reads"] = all.reads;
  dict["writes"] = all.writes;
  dict["chunk_bytes"] = self.engine->keyspace.arena().chunk_bytes();
  return dict;
}

nb::dict command_figures(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const kv::NativeCommand& command : self.engine->commands.all()) {
    dict[std::string(command.name).c_str()] =
        nb::make_tuple(command.calls, command.ns, command.rejected, command.failed,
                       std::vector<uint64_t>(command.buckets.begin(), command.buckets.end()));
  }
  return dict;
}

nb::dict error_figures(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const auto& [code, count] : self.engine->errors) dict[nb::str(code.data(), code.size())] = count;
  return dict;
}

void reset_figures(EngineHandle& self) {
  const auto held = self.lock();
  self.engine->figures = {};
  self.engine->keyspace.figures = {.dirty = self.engine->keyspace.figures.dirty};
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
    nb::list words;
    for (const std::string& word : slow.words) words.append(to_bytes(word));
    list.append(nb::make_tuple(slow.client, slow.ns, slow.unix_ms, words));
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
  bind_kv_base_copy(m);
  bind_kv_replication(m);
  bind_kv_tracking(engine);

  engine
      .def(nb::init<uint32_t, nb::object>(), nb::arg("databases") = 16, nb::arg("memory").none() = nb::none(),
           "`memory`: a function that gives a writable buffer of so many bytes, or None for the process's "
           "own.")
      .def("set_program", set_program, nb::arg("program").none(),
           "Who answers what native code does not; None, while it does not run: nobody, and it is let go.")
      .def("run", run, "Serves until stop(), on the thread that calls it.")
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
          "newcomers",
          [](EngineHandle& self, bool ruled, bool strange, bool is_protected, size_t max_clients,
             size_t out_limit) {
            const auto held = self.lock();
            self.loop->newcomers_ruled = ruled;
            self.loop->newcomers_strange = strange;
            self.loop->is_protected = is_protected;
            self.loop->max_clients = max_clients;
            self.loop->newcomers_out_limit = out_limit;
          },
          nb::kw_only(), nb::arg("ruled"), nb::arg("strange"), nb::arg("protected"), nb::arg("max_clients"),
          nb::arg("out_limit") = 0, "How clients that connect from now on are treated.")
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
            const auto words = words_of(effect);
            self.engine->keyspace.log(database, words);
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
      .def(
          "is_native",
          [](EngineHandle& self, const nb::bytes& name) {
            return self.engine->commands.find(view_of(name)) != nullptr;
          },
          nb::arg("name"))
      .def_prop_ro(
          "native_commands",
          [](EngineHandle& self) {
            nb::list names;
            for (const kv::NativeCommand& command : self.engine->commands.all()) {
              names.append(nb::make_tuple(std::string(command.name), command.arity, command.writes));
            }
            return names;
          },
          nb::sig("def native_commands(self) -> list[tuple[str, int, bool]]"))
      .def_prop_ro("now_ms", [](EngineHandle& self) { return self.engine->keyspace.now_ms(); })
      .def("refresh_time",
           [](EngineHandle& self) {
             const auto held = self.lock();
             self.engine->refresh_time();
           })
      .def("figures", figures, nb::sig("def figures(self) -> dict[str, int]"))
      .def("command_figures", command_figures,
           nb::sig("def command_figures(self) -> dict[str, tuple[int, int, int, int, list[int]]]"),
           "(calls, nanoseconds, rejected, failed, calls by the time they took) of each native command.")
      .def("error_figures", error_figures, nb::sig("def error_figures(self) -> dict[str, int]"),
           "How often native code answered with which code.")
      .def("count_output_disconnection",
           [](EngineHandle& self) {
             const auto held = self.lock();
             ++self.engine->figures.output_disconnections;
           })
      .def("reset_figures", reset_figures)
      .def("take_slow", take_slow, nb::sig("def take_slow(self) -> list[tuple[int, int, int, list[bytes]]]"),
           "(client, ns, unix_ms, words) of native commands that took long.")
      .def_prop_rw("ruled", getter<&kv::Engine::ruled>(), setter<&kv::Engine::ruled, bool>())
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
          [](EngineHandle& self, size_t word_bytes, size_t buffer_bytes) {
            const auto held = self.lock();
            self.engine->limits.word_bytes = word_bytes;
            self.engine->max_input_bytes = buffer_bytes;
          },
          nb::kw_only(), nb::arg("word_bytes"), nb::arg("buffer_bytes"),
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
