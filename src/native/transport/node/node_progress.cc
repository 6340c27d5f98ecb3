// Which thread drives a node (polls its completion queues), and how threads sleep. No event is missed,
// because a thread arms the queues and polls once more before it sleeps, and the node's thread sleeps until a
// queue's event or its tick.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "transport/node/node.h"
#include "transport/node/yield_policy.h"
#include "util/processor/move_to_other_core.h"
#include "util/processor/thread_name.h"
#include "util/spinlock.h"
#include "util/waiter.h"

namespace verbena::transport {
namespace {

constexpr int kTickMs = 20;
// While callers drive, the node's thread only checks whether they still do. It waits longer from check to
// check, because each one takes the core from a caller.
constexpr int kMinBackOffMs = 1, kMaxBackOffMs = 2;
constexpr int kRoundsPerClock = 16;
constexpr uint64_t kGatherNs = 5'000;
constexpr int kMaxYields = 100;  // before a thread that locks repeatedly waits like the others

// How long spin_for_reply() may keep the node's lock and Python's GIL.
constexpr uint64_t kQuickNs = 4'000;
constexpr int kQuickRounds = 8;  // per reading of the clock

class Spinner {
 public:
  // Reads the clock; yields the core first when it is time to.
  uint64_t now() {
    const uint64_t before = now_ns();
    if (!policy_.should_yield(before)) return before;
    ::sched_yield();
    const uint64_t after = now_ns();
    if (policy_.record_yield(before, after) && move_to_other_core()) now_after_sleep();
    return after;
  }
  // Reads the clock after a sleep, during which other threads could run.
  uint64_t now_after_sleep() {
    const uint64_t time = now_ns();
    policy_.record_sleep(time);
    return time;
  }

 private:
  YieldPolicy policy_{now_ns()};
};

}  // namespace

std::unique_lock<YieldingMutex> Node::lock_in_turn() {
  for (int i = 0; i < kMaxYields && !mutex_.try_lock_if_no_waiters(); ++i) {
    if (i + 1 == kMaxYields) return lock();
    ::sched_yield();
  }
  return std::unique_lock(mutex_, std::adopt_lock);
}

bool Node::drive_once() {
  loop_rounds_.fetch_add(1, std::memory_order_relaxed);
  tick_if_due(now_ns());  // a loop that always finds work never calls arm_and_poll()
  return drive_locked();
}

bool Node::drive(uint32_t spin_us, const EventQueue& queue, size_t enough) {
  bool found = false;
  {
    const auto held = lock();
    found = drive_once() || queue.size() > 0;
  }
  // Not a Waiter: finding something shortens the spin to kGatherNs instead of ending it, and the loop sleeps
  // by itself.
  Spinner spinner;
  uint64_t now = spinner.now();
  uint64_t until = now + (found ? kGatherNs : uint64_t{spin_us} * 1000);
  for (; now < until && !(found && queue.size() >= enough); now = spinner.now()) {
    const auto held = lock();
    bool more = false;
    for (int i = 0; i < kRoundsPerClock && !more && !is_contended(); ++i) more = drive_locked();
    if (more && !found) until = now + kGatherNs;
    found |= more;
  }
  return found;
}

void Node::acknowledge() {
  const auto held = lock();
  for (const auto& port : ports_) {
    for (const auto& cq : port->queues()) cq->acknowledge();
  }
}

bool Node::arm_and_poll() {
  const auto held = lock();
  loop_rounds_.fetch_add(1, std::memory_order_relaxed);
  arm();
  tick_if_due(now_ns());
  return drive_locked();
}

uint64_t Node::spin_ns() const { return options_.sleeps ? uint64_t{options_.busy_poll_us} * 1000 : kNever; }

void Node::arm() {
  for (const auto& port : ports_) {
    for (const auto& cq : port->queues()) {
      cq->acknowledge();
      cq->arm(false);
    }
  }
}

bool Node::wait(Operation& operation, uint64_t deadline_ns) {
  const auto done = [&operation] { return operation.finished.load(std::memory_order_acquire); };
  if (done()) return true;
  Waiter waiter(spin_ns(), deadline_ns);
  {
    callers_.fetch_add(1, std::memory_order_relaxed);
    caller_rounds_.fetch_add(1, std::memory_order_relaxed);  // counts also if the first poll succeeds
    Spinner spinner;
    const auto drive = [&] {
      if (mutex_.try_lock_if_no_waiters()) {
        drive_locked();
        mutex_.unlock();
      } else {
        cpu_relax();
      }
      return done();
    };
    const auto clock = [&] {
      caller_rounds_.fetch_add(1, std::memory_order_relaxed);
      return spinner.now();
    };
    const bool is_done = waiter.spin<kRoundsPerClock>(drive, clock);
    callers_.fetch_sub(1, std::memory_order_relaxed);
    if (is_done || !waiter.may_sleep()) return is_done;
  }
  const EventFd& own = thread_event();
  const auto arm_and_drive = [&] {
    const auto held = lock();
    operation.sleeper = &own;
    arm();
    drive_locked();
  };
  const auto sleep = [&](uint64_t timeout_ns) {
    const Readable woken = sleep_on(own.get(), epoll_.get(), timeout_ns);
    if (woken.first) own.clear();
    if (stopping_.load(std::memory_order_relaxed)) return Wake::stop;
    return woken.second ? Wake::rearm : Wake::poll;
  };
  waiter.sleep(done, arm_and_drive, sleep);
  const auto held = lock();
  operation.sleeper = nullptr;
  own.clear();
  return done();
}

bool Node::spin_for_reply(Operation& operation) {
  Session& session = *operation.session;
  auto& policy = operation.opcode == Opcode::send ? session.call_spin_policy : session.operation_spin_policy;
  if (!policy.should_spin()) return false;
  const auto done = [&operation] { return operation.finished.load(std::memory_order_relaxed); };
  caller_rounds_.store(caller_rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  do {
    for (int i = 0; i < kQuickRounds && !done(); ++i) drive_locked();
  } while (!done() && !mutex_.has_waiters() && now_ns() - operation.started_ns < kQuickNs);
  if (!done()) {
    policy.record_late();
    return false;
  }
  policy.record_reply();
  return operation.outcome == Outcome::ok;
}

void Node::drive_or_sleep() {
  callers_.fetch_add(1, std::memory_order_relaxed);
  Spinner spinner;
  const auto drive = [&] {
    if (mutex_.try_lock_if_no_waiters()) {
      const bool found = drive_locked();
      mutex_.unlock();
      return found;
    }
    cpu_relax();
    return false;
  };
  Waiter waiter(uint64_t{options_.busy_poll_us} * 1000, kNever);
  const bool found = waiter.spin<1>(drive, [&] { return spinner.now(); });
  caller_rounds_.fetch_add(1, std::memory_order_relaxed);
  callers_.fetch_sub(1, std::memory_order_relaxed);
  if (!found && options_.sleeps)
    std::this_thread::sleep_for(std::chrono::microseconds(options_.busy_poll_us));
}

void Node::sleep(int timeout_ms) {
  pollfd fds[] = {{.fd = epoll_.get(), .events = POLLIN, .revents = 0},
                  {.fd = stop_event_.get(), .events = POLLIN, .revents = 0}};
  ::poll(fds, 2, timeout_ms);
}

// Not a Waiter: the thread waits for no condition, backs off while callers drive, and does not arm as long as
// it finds work.
void Node::run() {
  name_thread("verbena-node");
  const uint64_t spin_ns = uint64_t{options_.busy_poll_us} * 1000;
  Spinner spinner;
  uint64_t now = spinner.now(), idle_since = now, seen_callers = 0;
  int finds = 0, back_off_ms = kMinBackOffMs;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (options_.loop_driven) {
      drive_for_loop();
      continue;
    }
    bool found = false;
    if (mutex_.try_lock_if_no_waiters()) {
      // Several rounds, because the lock and the clock cost as much as a poll.
      for (int i = 0; i < kRoundsPerClock && !found && !is_contended(); ++i) found = drive_locked();
      tick_if_due(now);
      mutex_.unlock();
    } else {
      cpu_relax();
    }
    const uint64_t caller_rounds = caller_rounds_.load(std::memory_order_relaxed);
    if (callers_.load(std::memory_order_relaxed) > 0 || caller_rounds != seen_callers) {
      // Callers drive with less latency: without an event, on the core that needs the reply.
      seen_callers = caller_rounds;
      pollfd stop{.fd = stop_event_.get(), .events = POLLIN, .revents = 0};
      ::poll(&stop, 1, back_off_ms);
      back_off_ms = std::min(2 * back_off_ms, kMaxBackOffMs);
      now = spinner.now_after_sleep();
      continue;
    }
    back_off_ms = kMinBackOffMs;
    if (found) {
      idle_since = 0;  // set at the next reading of the clock
      if (++finds % kRoundsPerClock != 0) continue;
    }
    // A thread that does not spin does not yield either: it would wait behind busy threads with work pending.
    now = spin_ns == 0 && options_.sleeps ? now_ns() : spinner.now();
    if (idle_since == 0) idle_since = now;
    if (!options_.sleeps || now - idle_since < spin_ns) continue;
    {
      const auto held = lock();
      arm();
      found = drive_locked();
    }
    if (!found) sleep(kTickMs);
    idle_since = found ? 0 : idle_since;
    now = spinner.now_after_sleep();
  }
}

// The event loop drives. If it has not for one tick, this thread does, until the loop drives again.
void Node::drive_for_loop() {
  const uint64_t rounds = loop_rounds_.load(std::memory_order_relaxed);
  pollfd stop{.fd = stop_event_.get(), .events = POLLIN, .revents = 0};
  ::poll(&stop, 1, kTickMs);
  while (loop_rounds_.load(std::memory_order_relaxed) == rounds &&
         !stopping_.load(std::memory_order_relaxed)) {
    {
      const auto held = lock();
      arm();
      drive_locked();
      tick_if_due(now_ns());
    }
    sleep(kTickMs);
  }
}

}  // namespace verbena::transport
