// Waiter with a clock, arming and sleeping of the test: what is called in which order, and for how long.
#include "util/waiter.h"

#include <string>
#include <thread>

#include "check.h"

using verbena::kNever;
using verbena::sleep_on;
using verbena::Waiter;
using verbena::WaitResult;
using verbena::Wake;

namespace {

constexpr uint64_t kStart = 1'000'000, kSlice = Waiter::kSliceNs;

// Every reading of the clock takes 100 ns, every sleep as long as it was asked to. `calls` records the order:
// p poll, a arm, s sleep.
struct Source {
  uint64_t now = kStart, found_at = kNever, slept_ns = 0;
  int polls = 0, arms = 0, sleeps = 0, found_after_arms = -1, stop_after_sleeps = -1;
  Wake wake = Wake::rearm;
  std::string calls;

  bool poll() {
    ++polls;
    calls += 'p';
    return now >= found_at || arms == found_after_arms;
  }
  void arm() {
    ++arms;
    calls += 'a';
  }
  Wake sleep(uint64_t timeout_ns) {
    ++sleeps;
    calls += 's';
    now += timeout_ns;
    slept_ns += timeout_ns;
    return sleeps == stop_after_sleeps ? Wake::stop : wake;
  }

  bool spin(Waiter& waiter) {
    return waiter.spin([this] { return poll(); }, [this] { return now += 100; });
  }
  WaitResult wait(uint64_t spin_ns, uint64_t deadline_ns) {
    return Waiter(spin_ns, deadline_ns)
        .wait([this] { return poll(); }, [this] { arm(); }, [this](uint64_t ns) { return sleep(ns); },
              [this] { return now += 100; });
  }
};

}  // namespace

TEST("an event that is already there is found by one poll, without reading the clock") {
  Source source{.found_at = 0};
  CHECK(source.wait(50'000, kNever) == WaitResult::found);
  CHECK(source.calls == "p" && source.now == kStart);
}

TEST("an event during the spin is found without arming") {
  Source source{.found_at = kStart + 10'000};
  CHECK(source.wait(50'000, kNever) == WaitResult::found);
  CHECK(source.arms == 0 && source.sleeps == 0 && source.now < kStart + 11'000);
}

TEST("the spin lasts for its full time and reads the clock once for several polls") {
  Source source;
  Waiter waiter(5'000, kNever);
  CHECK(!source.spin(waiter));
  CHECK(source.polls == 1 + 50 * Waiter::kPollsPerClock && source.now == kStart + 5'100);
  CHECK(waiter.may_sleep());
}

TEST("without a spin time, wait() polls once, arms, polls again and sleeps") {
  Source source{.found_at = kStart + kSlice};
  CHECK(source.wait(0, kNever) == WaitResult::found);
  CHECK(source.calls == "papsap");
}

TEST("an event before the arming raises no signal and is found by the poll after it") {
  Source source{.found_after_arms = 1};
  CHECK(source.wait(0, kNever) == WaitResult::found);
  CHECK(source.calls == "pap");
}

TEST("a sleep that ended without an event is followed by a poll, not by arming") {
  Source source{.found_at = kStart + 2 * kSlice, .wake = Wake::poll};
  CHECK(source.wait(0, kNever) == WaitResult::found);
  CHECK(source.calls == "papspsp");
}

TEST("a deadline within the spinning ends it, and nothing sleeps") {
  Source source;
  CHECK(source.wait(50'000, kStart + 1'000) == WaitResult::timed_out);
  CHECK(source.arms == 0 && source.sleeps == 0 && source.now >= kStart + 1'000);
}

TEST("a deadline that has passed allows one poll, which may succeed") {
  Source source{.found_at = 0};
  CHECK(source.wait(50'000, 1) == WaitResult::found);
  Source empty;
  CHECK(empty.wait(50'000, 1) == WaitResult::timed_out);
  CHECK(empty.calls == "p");
}

TEST("sleeps are slices, the last one ends at the deadline, and a last poll follows it") {
  Source source;
  const uint64_t deadline = kStart + 2 * kSlice + kSlice / 2;
  CHECK(source.wait(0, deadline) == WaitResult::timed_out);
  CHECK(source.sleeps == 3 && source.calls == "papsapsapsap");
  CHECK(source.now >= deadline && source.now <= deadline + 200);
}

TEST("a sleep can stop the wait") {
  Source source{.stop_after_sleeps = 2};
  CHECK(source.wait(0, kNever) == WaitResult::interrupted);
  CHECK(source.calls == "papsaps");
}

TEST("spinning without end neither overflows nor sleeps") {
  Source source{.found_at = kStart + 100'000'000};
  CHECK(source.wait(kNever, kNever) == WaitResult::found);
  CHECK(source.arms == 0);
}

TEST("sleep_on reports which descriptor is readable, and the end of the time") {
  const verbena::EventFd first, second;
  CHECK(!sleep_on(first.get(), second.get(), 1'000'000).first);
  std::thread([&] { second.signal(); }).join();
  const auto readable = sleep_on(first.get(), second.get(), 10'000'000'000);
  CHECK(!readable.first && readable.second);
}

RUN_TESTS()
