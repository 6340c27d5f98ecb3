// The calibration of the measuring clock, with clocks that stop and jump as on a loaded machine.
#include "bench/timer.h"

#include "check.h"

using namespace verbena::bench;

TEST("preemption during calibration does not raise the cost of a reading") {
  uint64_t now = 0, readings = 0;
  const auto ticks = [&] {
    now += 12;
    if (++readings % 1000 == 500) now += 4'000'000;  // preempted for a time slice
    return now;
  };
  CHECK(reading_cost(ticks) == 12);
}

TEST("two clocks are read at the least disturbed moment") {
  uint64_t now = 1'000'000, tries = 0;
  const auto wall = [&] { return now += 20; };
  const auto ticks = [&] {
    now += ++tries == 7 ? 10 : 5'000'000;
    return now * 3;
  };
  const Instant instant = same_instant(wall, ticks);
  const uint64_t ticks_at_wall = instant.wall_ns * 3;
  CHECK(instant.ticks < ticks_at_wall + 100);
  CHECK(ticks_at_wall < instant.ticks + 100);
}

TEST("a sample is positive, or zero if it is shorter than a reading") {
  const Timer& timer = Timer::instance();
  CHECK(timer.per_round_ns(0, 1'000'000, 1) > 0);
  CHECK(timer.per_round_ns(5, 5, 1) == 0);
}

RUN_TESTS()
