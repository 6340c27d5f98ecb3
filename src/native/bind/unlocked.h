// Unlocked: releases the GIL for a scope, safely also if the interpreter exits meanwhile. Python kills a
// thread that acquires the GIL of an exiting interpreter, and C++ frames do not survive that. So
// end_unlocked(), the last step of verbena._ending, sets a flag first, and a thread that wants the GIL later
// sleeps until the process ends.
// Depends on nanobind only. A forked child begins with no thread outside: see forget_other_threads().
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>

namespace verbena::bind {

class Unlocked {
 public:
  Unlocked() {
    outside.fetch_add(1);
    state_ = PyEval_SaveThread();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { acquire_gil(); }

  // Calls `function` with the GIL held, and returns its result.
  template <typename Function>
  auto with_gil(Function function) {
    enter();
    const auto result = function();
    leave();
    return result;
  }

  // with_gil() in two steps, for callers that use the GIL often: it is held between enter() and leave().
  void enter() { acquire_gil(); }
  void leave() {
    outside.fetch_add(1);
    state_ = PyEval_SaveThread();
  }

 private:
  friend void end_unlocked();
  friend void forget_other_threads();

  void acquire_gil() {
    if (ending.load() && !ends_interpreter) wait_for_exit();
    PyEval_RestoreThread(state_);
    outside.fetch_sub(1);
  }
  [[noreturn]] static void wait_for_exit();

  static inline std::atomic<int> outside{0};
  static inline std::atomic<bool> ending{false};
  // Set in the thread that runs end_unlocked(): it may acquire the GIL until the end.
  static inline thread_local bool ends_interpreter = false;
  PyThreadState* state_;
};

// Waits until every Unlocked thread has either acquired the GIL again or stopped for good, but at
// most 300 ms.
void end_unlocked();

// For a forked child: the threads that were outside stayed with the parent.
void forget_other_threads();

}  // namespace verbena::bind
