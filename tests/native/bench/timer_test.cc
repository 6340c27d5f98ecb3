// The measuring clock's calibration, with clocks that stop and jump as those of a loaded machine do.
#include "bench/timer.h"

#include "check.h"

using namespace verbena::bench;

TEST("losing the core while readings are counted does not make them dear") {
  uint64_t now = 0, readings = 0;
  const auto ticks = [&] {
    now += 12;
    if (++readings % 1000 == 500) now += 4'000'000;  // a time slice, spent elsewhere
    return now;
  };
  CHECK(reading_cost(ticks) == 12);
}

TEST("two clocks are read at the moment when nothing came between") {
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

TEST("a sample that is not zero stays so") {
  const Timer& timer = Timer::instance();
  CHECK(timer.reading_ns() > 0);
  const auto cost = static_cast<uint64_t>(timer.reading_ns());
  CHECK(timer.per_round_ns(0, 100 * (cost + 10), 1) > 0);
  CHECK(timer.per_round_ns(5, 5, 1) == 0);
}

RUN_TESTS()
