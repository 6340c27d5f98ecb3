// Several threads wait on one router: nobody hangs when the one that pumps leaves.
#include <poll.h>

#include <atomic>
#include <thread>

#include "check.h"
#include "stub_wire.h"
#include "util/clock.h"
#include "verbs/router.h"

using namespace verbena;

namespace {

constexpr uint64_t kPatienceNs = 10'000'000'000;

void wait_for_all(uint32_t spin_us, int threads, int rounds) {
  auto queue = std::make_shared<stub::Queue>();
  CompletionRouter router(queue);
  std::mutex mutex;
  std::vector<uint64_t> open;
  std::atomic<int> failures{0}, running{threads};

  std::vector<std::jthread> waiters;
  for (int i = 0; i < threads; ++i) {
    waiters.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        const uint64_t id = router.begin(7);
        {
          const std::lock_guard lock(mutex);
          open.push_back(id);
        }
        Completion done;
        if (!router.wait(id, now_ns() + kPatienceNs, spin_us) || !router.take(id, done) || done.id != id)
          ++failures;
      }
      --running;
    });
  }
  while (running > 0) {
    std::vector<uint64_t> batch;
    {
      const std::lock_guard lock(mutex);
      batch.swap(open);
    }
    for (const uint64_t id : batch) queue->push({.id = id});
    std::this_thread::yield();
  }
  CHECK(failures == 0);
  CHECK(router.tracked() == 0);
}

}  // namespace

TEST("every spinning thread gets its completion") { wait_for_all(10'000, 4, 300); }

TEST("every sleeping thread gets its completion at once, not at the next slice") {
  const uint64_t begin = now_ns();
  wait_for_all(0, 4, 300);
  CHECK(now_ns() - begin <
        5'000'000'000);  // a lost wake-up costs 20 ms; 300 rounds of them would take six seconds
}

TEST("sleepers, a raw poller and an event loop share one queue") {
  auto queue = std::make_shared<stub::Queue>();
  CompletionRouter router(queue);
  constexpr int kRounds = 300;
  std::atomic<int> failures{0};
  std::jthread sleeper([&] {
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t id = router.begin(7);
      std::jthread finisher([&queue, id] { queue->push({.id = id}); });
      Completion done;
      if (!router.wait(id, now_ns() + kPatienceNs, 0) || !router.take(id, done)) ++failures;
    }
  });
  std::jthread raw([&] {
    for (int i = 0; i < kRounds; ++i) {
      queue->push({.id = 1});
      Completion one[1];
      if (router.wait_raw(one, now_ns() + kPatienceNs, 0) != 1) ++failures;
    }
  });
  std::jthread loop([&] {
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t id = router.begin(7);
      Completion done;
      if (router.watch(id, done)) ++failures;
      queue->push({.id = id});
      std::vector<Completion> finished;
      while (finished.empty()) {
        pollfd fds[] = {{queue->fileno(), POLLIN, 0}, {router.wakeup_fileno(), POLLIN, 0}};
        if (::poll(fds, 2, 5000) <= 0) {
          ++failures;
          break;
        }
        router.drain_watched(finished);
      }
    }
  });
  sleeper.join();
  raw.join();
  loop.join();
  CHECK(failures == 0);
  CHECK(router.tracked() == 0);
}

TEST("closing a queue pair releases the threads that wait on it") {
  auto queue = std::make_shared<stub::Queue>();
  CompletionRouter router(queue);
  std::atomic<int> flushed{0};
  {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 3; ++i) {
      const uint64_t id = router.begin(7);
      waiters.emplace_back([&router, &flushed, id] {
        Completion done;
        if (router.wait(id, now_ns() + kPatienceNs, 0) && router.take(id, done)) {
          flushed += done.status == Status::wr_flush_err;
        }
      });
    }
    router.forget_qp(7);
  }
  CHECK(flushed == 3);
}

RUN_TESTS()
