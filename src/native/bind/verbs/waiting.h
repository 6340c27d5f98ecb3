// Blocking waits for Python: without the GIL, in slices, with a check for signals (Ctrl-C) between them.
// May depend on bind/unlocked.h, verbs/ and util/ only.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>

#include "bind/unlocked.h"
#include "util/clock.h"
#include "verbs/router.h"

namespace verbena::bind {

constexpr uint64_t kSignalSliceNs = 50'000'000;

// The deadline that is `timeout_s` from now; kNever if it is negative, NaN or over 1e9.
inline uint64_t deadline_after(double timeout_s) {
  if (!(timeout_s >= 0) || timeout_s > 1e9) return kNever;
  return now_ns() + static_cast<uint64_t>(timeout_s * 1e9);
}

// Calls wait(until_ns) without the GIL until it returns true (true) or the deadline passes (false). Throws
// python_error if a signal handler raised; the caller must then give up what it waited for.
template <typename Wait>
bool wait_with_signals(uint64_t deadline_ns, Wait wait) {
  for (;;) {
    bool is_over;
    {
      const Unlocked unlocked;
      const uint64_t slice_end = now_ns() + kSignalSliceNs;
      if (wait(std::min(deadline_ns, slice_end))) return true;
      is_over = now_ns() >= deadline_ns;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    if (is_over) return false;
  }
}

// A reference to a Python object for native code. The last copy must be dropped with the GIL held.
inline std::shared_ptr<void> keep_object(const nanobind::handle& object) {
  return {object.inc_ref().ptr(), [](void* kept) {
            if (Py_IsInitialized()) Py_DECREF(static_cast<PyObject*>(kept));
          }};
}

inline void drop_references(CompletionRouter& router) {
  if (router.has_dropped()) [[unlikely]]
    router.take_dropped();
}

}  // namespace verbena::bind
