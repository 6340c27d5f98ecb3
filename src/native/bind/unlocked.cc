#include "bind/unlocked.h"

#include <time.h>
#include <unistd.h>

namespace verbena::bind {
namespace {

constexpr int kMaxWaitMs = 300;  // a blocking wait checks for signals every 50 ms

}  // namespace

void Unlocked::wait_for_exit() {
  outside.fetch_sub(1);
  for (;;) ::pause();
}

void forget_other_threads() { Unlocked::outside.store(0); }

void end_unlocked() {
  Unlocked::ends_interpreter = true;
  Unlocked::ending.store(true);
  PyThreadState* const state = PyEval_SaveThread();
  const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int waited = 0; waited < kMaxWaitMs && Unlocked::outside.load() > 0; ++waited)
    nanosleep(&pause, nullptr);
  PyEval_RestoreThread(state);
}

}  // namespace verbena::bind
