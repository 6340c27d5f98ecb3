// The largest of what was noted in the last eight seconds.
#include "check.h"
#include "kv/recent_max.h"

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

TEST("whatever was noted is forgotten after a long time, and time does not go back") {
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
RUN_TESTS()
