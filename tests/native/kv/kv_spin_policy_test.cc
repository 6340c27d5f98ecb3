// When the store's loop looks again before it sleeps, and when it leaves the processor to others.
#include "check.h"
#include "kv/frontends/spin_policy.h"

using namespace verbena::kv;

namespace {

constexpr uint64_t kTickNs = 10'000'000;

// Ticks until it looks again; `lost` times in each the processor was lost.
uint64_t ticks_of_rest(SpinPolicy& patience, uint64_t& times, uint64_t& now, uint64_t lost) {
  for (uint64_t ticks = 0;; ++ticks) {
    if (!patience.is_crowded()) return ticks;
    patience.lost_processor(times += lost, now += kTickNs);
  }
}

}  // namespace

TEST("the more often a look was in vain, the rarer is the next; one that finds something ends that") {
  SpinPolicy patience;
  for (const int left_out : {1, 3, 7, 15}) {
    CHECK(patience.looks());
    patience.found_nothing();
    for (int i = 0; i < left_out; ++i) CHECK(!patience.looks());
  }
  CHECK(patience.looks());
  patience.found();
  CHECK(patience.looks());
  patience.found_nothing();
  CHECK(!patience.looks());
  CHECK(patience.looks());
}

TEST("the kernel's own threads are no crowd") {
  SpinPolicy patience;
  uint64_t times = 5'000, now = 1'000'000'000'000;
  patience.lost_processor(times, now);  // what was before it began
  for (int i = 0; i < 1000; ++i) {
    patience.lost_processor(times += 5, now += kTickNs);
    CHECK(patience.looks());
  }
}

TEST("a tick in which others took the processor again and again ends looking for a while") {
  SpinPolicy patience;
  uint64_t times = 0, now = 1'000'000'000'000;
  patience.lost_processor(times, now);
  patience.lost_processor(times += 150, now += kTickNs);
  CHECK(patience.is_crowded());
  CHECK(!patience.looks());
  CHECK(ticks_of_rest(patience, times, now, 1) == SpinPolicy::kShortestNs / kTickNs);
  CHECK(patience.looks());
}

TEST("while the crowd lasts one tick of ever more is spent on looking; a calm one forgets it") {
  SpinPolicy patience;
  uint64_t times = 0, now = 1'000'000'000'000;
  patience.lost_processor(times, now);
  uint64_t expected = SpinPolicy::kShortestNs;
  for (int i = 0; i < 8; ++i) {
    patience.lost_processor(times += 150, now += kTickNs);
    CHECK(ticks_of_rest(patience, times, now, 1) == expected / kTickNs);
    expected = std::min(2 * expected, SpinPolicy::kLongestNs);
  }
  CHECK(expected == SpinPolicy::kLongestNs);
  patience.lost_processor(times += 1, now += kTickNs);
  patience.lost_processor(times += 150, now += kTickNs);
  CHECK(ticks_of_rest(patience, times, now, 1) == SpinPolicy::kShortestNs / kTickNs);
}

RUN_TESTS()
