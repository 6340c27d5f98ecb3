// The Python module _native: calls the functions of bind.h, and defines crc32c(), which belongs to no class.
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <csignal>
#include <optional>

#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/unlocked.h"
#include "util/crc32c/crc32c.h"
#include "util/fatal.h"

namespace verbena::bind {
namespace {

// Ctrl-C waits until the module is complete: nanobind aborts the process if Python code that it runs while it
// defines an enumeration or a class raises KeyboardInterrupt.
class InterruptsDeferred {
 public:
  InterruptsDeferred() : handler_(PyOS_setsig(SIGINT, [](int) { arrived = 1; })) {
    if (PyErr_CheckSignals() == 0) return;                   // one that came before
    if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {  // of a handler of the program
      PyOS_setsig(SIGINT, handler_);
      throw nb::python_error();
    }
    PyErr_Clear();
    arrived = 1;
  }
  ~InterruptsDeferred() {
    PyOS_setsig(SIGINT, handler_);
    if (arrived) PyErr_SetInterrupt();
  }
  InterruptsDeferred(const InterruptsDeferred&) = delete;
  InterruptsDeferred& operator=(const InterruptsDeferred&) = delete;

 private:
  static inline volatile std::sig_atomic_t arrived = 0;
  const PyOS_sighandler_t handler_;
};

}  // namespace

NB_MODULE(_native, m) {
  // Ctrl-C at the end of an import makes Python forget the module, but the types exist once per process.
  static PyObject* complete = nullptr;
  if (complete) {
    PyDict_Update(PyModule_GetDict(m.ptr()), complete);
    return;
  }
  const InterruptsDeferred deferred;
  m.doc() = "Verbena's native core. Private: the public API is verbena.verbs.";
#ifdef NDEBUG
  nb::set_leak_warnings(false);  // objects that are open at exit are closed by the end of the process
#endif
  pthread_atfork(nullptr, nullptr, [] {
    forget_other_threads();
    nb::set_leak_warnings(false);  // a child leaks what it has inherited, on purpose: see bind/handle.h
  });
  nb::module_::import_("verbena._ending").attr("at_end")(nb::cpp_function(end_unlocked));
  bind_errors(m);
  bind_values(m);
  bind_memory(m);
  bind_remote_memory(m);
  bind_requests(m);
  bind_completion_queue(m);
  bind_queue_pair(m);
  bind_windows(m);
  bind_operations(m);
  bind_connections(m);
  bind_providers(m);
  bind_iwarp(m);
  bind_quic(m);
  bind_faults(m);
  bind_bench(m);
  bind_transport(m);
  bind_far(m);
  bind_kv(m);
  constexpr size_t kLong = 64u << 10;  // longer buffers are summed without the GIL
  m.def(
      "crc32c",
      [](const nb::handle& data, uint32_t seed) {
        const BufferView view(data, PyBUF_SIMPLE);
        std::optional<Unlocked> unlocked;
        if (view.size() > kLong) unlocked.emplace();
        return crc32c(seed, view.data(), view.size());
      },
      nb::arg("data"), nb::arg("seed") = 0, "CRC32C of a buffer, continuing from `seed`.");
  m.def(
      "end_process",
      [](const std::string& operation, const std::string& reason) {
        end_process(operation.c_str(), reason.c_str());
      },
      nb::arg("operation"), nb::arg("reason"),
      nb::sig("def end_process(operation: str, reason: str) -> typing.NoReturn"),
      "Ends the process with status 70 and one line on standard error, without any cleanup: after a failure "
      "that "
      "leaves the state of the process inconsistent.");
  complete = Py_NewRef(PyModule_GetDict(m.ptr()));
}

}  // namespace verbena::bind
