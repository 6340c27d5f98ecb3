// When a spinning thread yields its core and when it moves to another one, with a fake clock; and that moving
// leaves the thread's affinity as it was.
#include "transport/node/yield_policy.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "check.h"
#include "util/processor/move_to_other_core.h"

using verbena::move_to_other_core;
using verbena::transport::YieldPolicy;

namespace {

constexpr uint64_t kStart = 1'000'000'000'000;
constexpr uint64_t kAlone = YieldPolicy::kSharedYieldNs - 1, kShared = YieldPolicy::kSharedYieldNs;

// A thread that spins until the policy lets it yield, and gets its core back after `away`.
struct Clocked {
  uint64_t now = kStart;
  YieldPolicy policy{kStart};
  uint64_t pause = 0;

  bool yields(uint64_t away) {
    pause = 0;
    for (; !policy.should_yield(now); now += 1'000) pause += 1'000;
    const uint64_t began = now;
    now += away;
    return policy.record_yield(began, now);
  }
  // Shared yields until the thread should move.
  uint32_t shared_yields_before_move() {
    uint32_t times = 1;
    while (!yields(kShared)) ++times;
    return times;
  }
};

cpu_set_t cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  return set;
}

}  // namespace

TEST("a thread alone on its core yields less and less often, up to a limit") {
  Clocked clocked;
  for (const uint64_t expected : {4'000u, 8'000u, 16'000u, 32'000u, 64'000u, 64'000u}) {
    CHECK(!clocked.yields(kAlone));
    CHECK(clocked.pause == expected);
  }
}

TEST("a thread that shares its core yields often again") {
  Clocked clocked;
  for (int i = 0; i < 6; ++i) clocked.yields(kAlone);
  CHECK(!clocked.yields(kShared));
  clocked.yields(kShared);
  CHECK(clocked.pause == YieldPolicy::kMinIntervalNs);
}

TEST("it moves to another core after a number of shared yields in a row, and not before") {
  Clocked clocked;
  for (uint32_t i = 1; i < YieldPolicy::kMinSharedYields; ++i) CHECK(!clocked.yields(kShared));
  CHECK(!clocked.yields(kAlone));
  CHECK(clocked.shared_yields_before_move() == YieldPolicy::kMinSharedYields);
}

TEST(
    "where every core is shared it moves less and less often; each yield without sharing lowers the limit by "
    "one") {
  Clocked clocked;
  uint32_t expected = YieldPolicy::kMinSharedYields;
  for (int i = 0; i < 12; ++i) {
    CHECK(clocked.shared_yields_before_move() == expected);
    expected = std::min(2 * expected, YieldPolicy::kMaxSharedYields);
  }
  CHECK(expected == YieldPolicy::kMaxSharedYields);
  clocked.yields(kAlone);
  CHECK(clocked.shared_yields_before_move() == YieldPolicy::kMaxSharedYields - 1);
  for (uint32_t i = 0; i < 2 * YieldPolicy::kMaxSharedYields; ++i) clocked.yields(kAlone);
  CHECK(clocked.shared_yields_before_move() == YieldPolicy::kMinSharedYields);
}

TEST("after a sleep it does not yield at once") {
  Clocked clocked;
  clocked.now += 1'000'000;
  CHECK(clocked.policy.should_yield(clocked.now));
  clocked.policy.record_sleep(clocked.now);
  CHECK(!clocked.policy.should_yield(clocked.now + YieldPolicy::kMinIntervalNs - 1));
  CHECK(clocked.policy.should_yield(clocked.now + YieldPolicy::kMinIntervalNs));
}

TEST("moving keeps the affinity, limited or not") {
  bool was_limited = false, stayed = false, limit_stayed = false;
  std::thread([&] {
    const cpu_set_t before = cores();
    move_to_other_core();
    const cpu_set_t after = cores();
    stayed = CPU_EQUAL(&before, &after);
    cpu_set_t few;  // of three cores and more, two
    CPU_ZERO(&few);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&few) < std::min(2, CPU_COUNT(&before) - 1); ++core) {
      if (CPU_ISSET(core, &before)) CPU_SET(core, &few);
    }
    was_limited = ::sched_setaffinity(0, sizeof few, &few) == 0;
    const bool has_left = move_to_other_core();
    const cpu_set_t limited = cores();
    limit_stayed = CPU_EQUAL(&few, &limited) && has_left == (CPU_COUNT(&few) > 1);
  }).join();
  CHECK(stayed);
  CHECK(!was_limited || limit_stayed);  // a machine of one core has nothing to limit
}

RUN_TESTS()
