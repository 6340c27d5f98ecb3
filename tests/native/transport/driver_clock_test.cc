// The clock by which a node measures the silence of its peers.
#include "transport/node/driver_clock.h"

#include "check.h"

using verbena::transport::DriverClock;

TEST("turns in time count in full") {
  DriverClock clock(100);
  const uint64_t began = clock.advance(5'000);
  CHECK(began > 0);
  CHECK(clock.advance(5'060) == began + 60);
  CHECK(clock.advance(5'160) == began + 160);
}

TEST("a late turn counts as the longest step, and the next one in full again") {
  DriverClock clock(100);
  const uint64_t began = clock.advance(5'000);
  CHECK(clock.advance(9'000'000) == began + 100);
  CHECK(clock.advance(9'000'030) == began + 130);
}

RUN_TESTS()
