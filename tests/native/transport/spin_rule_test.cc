// When a thread that spins yields its core and when it goes to another one, with a clock of the test's; and
// that going to another core leaves the thread's set of cores as it was.
#include "transport/node/spin_rule.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "check.h"
#include "util/leave_core.h"

using verbena::leave_core;
using verbena::transport::SpinRule;

namespace {

constexpr uint64_t kStart = 1'000'000'000'000;
constexpr uint64_t kAlone = SpinRule::kAloneNs - 1, kShared = SpinRule::kAloneNs;

// It spins until it should yield, and has the core again after `away`; the pause before that.
struct Clocked {
  uint64_t now = kStart;
  SpinRule rule{kStart};
  uint64_t pause = 0;

  bool yields(uint64_t away) {
    pause = 0;
    for (; !rule.should_yield(now); now += 1'000) pause += 1'000;
    const uint64_t began = now;
    now += away;
    return rule.yielded(began, now);
  }
  // Times that the core was shared until it should go.
  uint32_t times_until_it_goes() {
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

TEST("who is alone on its core yields ever more rarely, up to a limit") {
  Clocked clocked;
  for (const uint64_t expected : {4'000u, 8'000u, 16'000u, 32'000u, 64'000u, 64'000u}) {
    CHECK(!clocked.yields(kAlone));
    CHECK(clocked.pause == expected);
  }
}

TEST("who shares its core yields often again") {
  Clocked clocked;
  for (int i = 0; i < 6; ++i) clocked.yields(kAlone);
  CHECK(!clocked.yields(kShared));
  clocked.yields(kShared);
  CHECK(clocked.pause == SpinRule::kShortestNs);
}

TEST("it goes to another core when the core was shared so many times in a row, and not before") {
  Clocked clocked;
  for (uint32_t i = 1; i < SpinRule::kLeastPatience; ++i) CHECK(!clocked.yields(kShared));
  CHECK(!clocked.yields(kAlone));
  CHECK(clocked.times_until_it_goes() == SpinRule::kLeastPatience);
}

TEST("where every core is shared it goes ever more rarely; calm gives it its impatience back, bit by bit") {
  Clocked clocked;
  uint32_t expected = SpinRule::kLeastPatience;
  for (int i = 0; i < 12; ++i) {
    CHECK(clocked.times_until_it_goes() == expected);
    expected = std::min(2 * expected, SpinRule::kMostPatience);
  }
  CHECK(expected == SpinRule::kMostPatience);
  clocked.yields(kAlone);
  CHECK(clocked.times_until_it_goes() == SpinRule::kMostPatience - 1);
  for (uint32_t i = 0; i < 2 * SpinRule::kMostPatience; ++i) clocked.yields(kAlone);
  CHECK(clocked.times_until_it_goes() == SpinRule::kLeastPatience);
}

TEST("after a sleep it need not yield at once") {
  Clocked clocked;
  clocked.now += 1'000'000;
  CHECK(clocked.rule.should_yield(clocked.now));
  clocked.rule.rested(clocked.now);
  CHECK(!clocked.rule.should_yield(clocked.now + SpinRule::kShortestNs - 1));
  CHECK(clocked.rule.should_yield(clocked.now + SpinRule::kShortestNs));
}

TEST("who leaves its core may use the same ones as before, limited or not") {
  bool was_limited = false, stayed = false, limit_stayed = false;
  std::thread([&] {
    const cpu_set_t before = cores();
    leave_core();
    const cpu_set_t after = cores();
    stayed = CPU_EQUAL(&before, &after);
    cpu_set_t few;  // of three cores and more, two
    CPU_ZERO(&few);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&few) < std::min(2, CPU_COUNT(&before) - 1); ++core) {
      if (CPU_ISSET(core, &before)) CPU_SET(core, &few);
    }
    was_limited = ::sched_setaffinity(0, sizeof few, &few) == 0;
    const bool has_left = leave_core();
    const cpu_set_t limited = cores();
    limit_stayed = CPU_EQUAL(&few, &limited) && has_left == (CPU_COUNT(&few) > 1);
  }).join();
  CHECK(stayed);
  CHECK(!was_limited || limit_stayed);  // a machine of one core has nothing to limit
}

RUN_TESTS()
