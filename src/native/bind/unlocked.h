// Working without the GIL, also when the interpreter ends meanwhile.
// A thread that asks for the GIL of an interpreter that is ending gets killed, which C++ frames do not
// survive. So threads are told before it ends (end_unlocked, by atexit), and those that come back later stay
// outside for good.
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
  ~Unlocked() { rejoin(); }

  // Calls back with the GIL.
  template <typename Function>
  auto with_gil(Function function) {
    enter();
    const auto result = function();
    leave();
    return result;
  }

  // The same in two steps, for who calls back often: between them the GIL is held.
  void enter() { rejoin(); }
  void leave() {
    outside.fetch_add(1);
    state_ = PyEval_SaveThread();
  }

 private:
  friend void end_unlocked();

  void rejoin() {
    if (ending.load() && !ends_interpreter) stay_outside();
    PyEval_RestoreThread(state_);
    outside.fetch_sub(1);
  }
  [[noreturn]] static void stay_outside();

  static inline std::atomic<int> outside{0};
  static inline std::atomic<bool> ending{false};
  static inline thread_local bool ends_interpreter = false;  // the thread that cleans up goes on to the end
  PyThreadState* state_;
};

// The interpreter is about to end: waits until every thread outside has come back or knows that it must not.
void end_unlocked();

}  // namespace verbena::bind
