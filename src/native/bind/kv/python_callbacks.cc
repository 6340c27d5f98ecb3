// The Python handlers as the engine calls them. Their walks and sums of values are in value_walk.cc.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>

#include "bind/kv/store.h"

namespace verbena::bind {

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
  bool answered = false, no_memory = false;
  with_gil([&] {
    try {
      nb::list argv;
      for (const std::string_view argument : arguments) argv.append(to_bytes(argument));
      run_(client.id, argv);  // writes its reply by Client.reply()
      answered = true;
    } catch (nb::python_error& error) {  // before Python ran the command, or while it wrote the reply
      no_memory = error.matches(PyExc_MemoryError);
      if (!no_memory) throw;
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  });
  if (answered) return;
  client.out.resize(std::min(before, client.out.size()));
  kv::ReplyWriter(client.out, client.version)
      .error(no_memory ? kv::Engine::kNoMemory : "ERR internal error: the command failed, see the log");
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
  with_gil_or_end("marking watched keys", [&] { watched_changed_(clients); });
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

}  // namespace verbena::bind
