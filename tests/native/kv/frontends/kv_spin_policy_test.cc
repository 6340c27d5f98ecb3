// When the store's loop looks again before it sleeps, and when it leaves the processor to others.
#include "check.h"
#include "kv/frontends/spin_policy.h"

using namespace verbena::kv;

namespace {

constexpr uint64_t kTickNs = 10'000'000;

// Ticks until it looks again; `lost` times in each the processor was lost.
uint64_t ticks_of_rest(SpinPolicy& policy, uint64_t& times, uint64_t& now, uint64_t lost) {
  for (uint64_t ticks = 0;; ++ticks) {
    if (!policy.is_contended()) return ticks;
    policy.update_preemptions(times += lost, now += kTickNs);
  }
}

}  // namespace

TEST("the more often a look was in vain, the rarer is the next; one that finds something ends that") {
  SpinPolicy policy;
  for (const int skips : {1, 3, 7, 15}) {
    CHECK(policy.should_spin());
    policy.spin_failed();
    for (int i = 0; i < skips; ++i) CHECK(!policy.should_spin());
  }
  CHECK(policy.should_spin());
  policy.spin_succeeded();
  CHECK(policy.should_spin());
  policy.spin_failed();
  CHECK(!policy.should_spin());
  CHECK(policy.should_spin());
}

TEST("the kernel's own threads are no crowd") {
  SpinPolicy policy;
  uint64_t times = 5'000, now = 1'000'000'000'000;
  policy.update_preemptions(times, now);  // what was before it began
  for (int i = 0; i < 1000; ++i) {
    policy.update_preemptions(times += 5, now += kTickNs);
    CHECK(policy.should_spin());
  }
}

TEST("a tick in which others took the processor again and again ends looking for a while") {
  SpinPolicy policy;
  uint64_t times = 0, now = 1'000'000'000'000;
  policy.update_preemptions(times, now);
  policy.update_preemptions(times += 150, now += kTickNs);
  CHECK(policy.is_contended());
  CHECK(!policy.should_spin());
  CHECK(ticks_of_rest(policy, times, now, 1) == SpinPolicy::kMinBackoffNs / kTickNs);
  CHECK(policy.should_spin());
}

TEST("while the crowd lasts one tick of ever more is spent on looking; a calm one forgets it") {
  SpinPolicy policy;
  uint64_t times = 0, now = 1'000'000'000'000;
  policy.update_preemptions(times, now);
  uint64_t expected = SpinPolicy::kMinBackoffNs;
  for (int i = 0; i < 8; ++i) {
    policy.update_preemptions(times += 150, now += kTickNs);
    CHECK(ticks_of_rest(policy, times, now, 1) == expected / kTickNs);
    expected = std::min(2 * expected, SpinPolicy::kMaxBackoffNs);
  }
  CHECK(expected == SpinPolicy::kMaxBackoffNs);
  policy.update_preemptions(times += 1, now += kTickNs);
  policy.update_preemptions(times += 150, now += kTickNs);
  CHECK(ticks_of_rest(policy, times, now, 1) == SpinPolicy::kMinBackoffNs / kTickNs);
}

RUN_TESTS()
