// The Python handles of the engine, its clients and databases, and the Python handlers as a
// kv::PythonHandler. The other files of bind/kv build on it; nothing outside bind may include it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "bind/buffer.h"
#include "bind/handle.h"
#include "bind/kv/lazy_free.h"
#include "bind/unlocked.h"
#include "kv/engine/engine.h"
#include "kv/frontends/event_loop.h"
#include "util/fatal.h"

namespace verbena::bind {

namespace nb = nanobind;

inline nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }
inline std::string_view view_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

// The arguments in a Python sequence of bytes, valid as long as its items. Raises TypeError for other items.
std::vector<std::string_view> arguments_of(nb::handle sequence);

// The Python handlers: an object with run(client, argv), opened(client), closed(client),
// watched_changed(clients), invalidated(messages), notify(database, kind, event, key), tick() and
// dump(value). On the loop's thread it takes the GIL at the first call of a batch and keeps it until
// release_gil().
class PythonCallbacks : public kv::PythonHandler {
 public:
  PythonCallbacks(kv::Engine& engine, nb::object object);
  ~PythonCallbacks() override;

  void run(kv::Client& client, kv::Arguments arguments) override;
  void opened(kv::Client& client) override;
  void closed(kv::Client& client) override;
  void release(const std::vector<uint64_t>& objects) override;
  uint64_t lazy_free_pending() const override { return lazy_free_->waiting(); }
  void lazy_free(uint64_t deadline_ns) override;
  void watched_changed(const std::vector<uint64_t>& clients) override;
  void invalidated(const std::vector<kv::Tracking::Message>& messages) override;
  void notify(uint32_t database, char kind, const char* event, std::string_view key) override;
  void tick() override;
  bool dump(uint64_t object, std::string& bytes) override;
  std::unique_ptr<kv::ValueWalk> walk(uint64_t object) override;
  std::unique_ptr<kv::ValueSum> sum(uint64_t object) override;
  uint64_t count(uint64_t object) override;
  void release_gil() override;

  const LazyFree& lazy_free() const { return *lazy_free_; }
  // Set while the loop runs: the object by which the loop's thread takes and releases the GIL.
  void set_thread(Unlocked* thread) {
    thread_ = thread;
    loop_thread_ = std::this_thread::get_id();
  }
  // Calls `function` with the GIL, on the loop's thread or on another thread that holds the engine's lock.
  // Exceptions are reported as unraisable.
  template <typename Function>
  void with_gil(Function function) {
    std::optional<nb::gil_scoped_acquire> other;
    if (thread_ && std::this_thread::get_id() == loop_thread_) {
      enter();
    } else {
      other.emplace();
    }
    try {
      function();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable(object_);
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(object_.ptr());
    }
  }

  // As with_gil(), for calls that must not fail: an exception ends the process.
  template <typename Function>
  void with_gil_or_end(const char* operation, Function function) {
    bool done = false;
    with_gil([&] {
      function();
      done = true;
    });
    if (!done) end_process(operation, "an exception in Python");
  }

 private:
  void enter();

  kv::Engine& engine_;
  nb::object object_;
  nb::object run_, opened_, closed_, watched_changed_, notify_, tick_;
  Unlocked* thread_ = nullptr;
  std::thread::id loop_thread_;
  bool inside_ = false;
  const std::shared_ptr<LazyFree> lazy_free_ = std::make_shared<LazyFree>();  // shared with the walks
};

struct EngineHandle {
  EngineHandle(uint32_t databases, nb::object source);
  ~EngineHandle();

  // Takes the engine's lock. Releases the GIL while it waits.
  kv::Engine::Lock lock() const {
    auto held = engine->try_lock();  // throws in a forked child
    if (!held) {
      const Unlocked unlocked;
      held.lock();
    }
    return held;
  }

  Owned<kv::Engine> engine;
  Owned<kv::EventLoop> loop;
  std::unique_ptr<PythonCallbacks> callbacks;
};

// Refers to a client by its id: the client may be gone.
struct ClientHandle {
  EngineHandle* engine;
  uint64_t id;
};

struct DatabaseHandle {
  EngineHandle* engine;
  uint32_t number;
};

void bind_kv_client(nb::module_& m);
void bind_kv_database(nb::module_& m);
void bind_kv_list(nb::module_& m);
void bind_kv_session(nb::module_& m);
void bind_kv_stream(nb::module_& m);
void bind_kv_reply_buffer(nb::module_& m);
void bind_kv_rdma(nb::module_& m);
void bind_kv_log(nb::module_& m);
void bind_kv_cluster(nb::module_& m, nb::class_<EngineHandle>& engine);
void bind_kv_backlog(nb::module_& m, nb::class_<EngineHandle>& engine);
void bind_kv_commands(nb::module_& m, nb::class_<EngineHandle>& engine);
void bind_kv_base_copy(nb::module_& m);
void bind_kv_envelope(nb::module_& m);
void bind_kv_replication(nb::module_& m);
void bind_kv_tracking(nb::class_<EngineHandle>& engine);

}  // namespace verbena::bind
