// What was noted in the last eight seconds: the largest, and how often what took how long.
#include <numeric>

#include "check.h"
#include "kv/engine/recent_max.h"
#include "kv/engine/recent_times.h"

using namespace verbena::kv;

namespace {
constexpr uint64_t kSecond = 1'000'000'000;
}

TEST("the largest counts until eight seconds have passed; then the largest of those that came later") {
  RecentMax recent;
  recent.pass(100 * kSecond);
  CHECK(recent.value() == 0);
  recent.note(7);
  recent.note(5);
  recent.pass(103 * kSecond);
  recent.note(6);
  CHECK(recent.value() == 7);
  recent.pass(107 * kSecond + kSecond / 2);
  CHECK(recent.value() == 7);
  recent.pass(108 * kSecond);
  CHECK(recent.value() == 6);
  recent.pass(111 * kSecond);
  CHECK(recent.value() == 0);
}

TEST("old samples expire, and time does not go back") {
  RecentMax recent;
  recent.pass(kSecond);
  for (uint64_t second = 1; second < 9; ++second) recent.pass(second * kSecond), recent.note(second);
  CHECK(recent.value() == 8);
  recent.pass(3 * kSecond);
  CHECK(recent.value() == 8);
  recent.pass(1'000 * kSecond);
  CHECK(recent.value() == 0);
  recent.note(3);
  CHECK(recent.value() == 3);
}

TEST("times are counted by how long they are until eight seconds have passed") {
  using verbena::transport::Histogram;
  RecentTimes recent;
  recent.pass(100 * kSecond);
  recent.note(1'000);
  recent.note(1'000);
  recent.pass(104 * kSecond);
  recent.note(1'000);
  recent.note(kSecond);
  const RecentTimes::Buckets all = recent.buckets();
  CHECK(all[Histogram::index(1'000)] == 3 && all[Histogram::index(kSecond)] == 1);
  CHECK(std::accumulate(all.begin(), all.end(), 0u) == 4);
  recent.pass(108 * kSecond);
  CHECK(recent.buckets()[Histogram::index(1'000)] == 1);
  recent.pass(112 * kSecond);
  const RecentTimes::Buckets none = recent.buckets();
  CHECK(std::accumulate(none.begin(), none.end(), 0u) == 0);
}
RUN_TESTS()
