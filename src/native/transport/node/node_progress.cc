// Who drives a node, and how they sleep. Nobody misses anything, because whoever is about to sleep arms the
// queues and then looks once more, and the node's thread sleeps on the queues' events or ticks.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "transport/node/node.h"
#include "transport/node/spin_rule.h"
#include "util/leave_core.h"
#include "util/spinlock.h"
#include "util/thread_name.h"
#include "util/waiter.h"

namespace verbena::transport {
namespace {

constexpr int kTickMs = 20;
// While callers drive, the thread only looks whether they still do: the more rarely the longer they have, as
// it takes the core from one of them each time.
constexpr int kShortestBackOffMs = 1, kLongestBackOffMs = 2;
constexpr int kRoundsPerClock = 16;
constexpr uint64_t kGatherNs = 5'000;

// A caller may keep the lock, and Python's, for so long.
constexpr uint64_t kQuickNs = 4'000;
constexpr int kQuickRounds = 8;  // between looks at the clock

class Spinner {
 public:
  // The time; now and then a little later.
  uint64_t look() {
    const uint64_t now = now_ns();
    if (!rule_.should_yield(now)) return now;
    ::sched_yield();
    const uint64_t after = now_ns();
    if (rule_.yielded(now, after) && leave_core()) look_rested();
    return after;
  }
  // The same after a sleep, in which others could run.
  uint64_t look_rested() {
    const uint64_t now = now_ns();
    rule_.rested(now);
    return now;
  }

 private:
  SpinRule rule_{now_ns()};
};

}  // namespace

bool Node::drive_once() {
  loop_rounds_.fetch_add(1, std::memory_order_relaxed);
  tick_if_due(now_ns());  // a loop that always finds something never rests
  return drive_locked();
}

bool Node::drive(uint32_t spin_us, const EventQueue& queue, size_t enough) {
  bool found = false;
  {
    const auto held = lock();
    found = drive_once() || queue.size() > 0;
  }
  // Not a Waiter: finding something shortens the spin to kGatherNs instead of ending it, and rest() sleeps.
  Spinner spinner;
  uint64_t now = spinner.look();
  uint64_t until = now + (found ? kGatherNs : uint64_t{spin_us} * 1000);
  for (; now < until && !(found && queue.size() >= enough); now = spinner.look()) {
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

bool Node::rest() {
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

bool Node::wait(Call& call, uint64_t deadline_ns) {
  const auto done = [&call] { return call.finished.load(std::memory_order_acquire); };
  if (done()) return true;
  Waiter waiter(spin_ns(), deadline_ns);
  {
    callers_.fetch_add(1, std::memory_order_relaxed);
    caller_rounds_.fetch_add(1, std::memory_order_relaxed);  // counts also if the first poll succeeds
    Spinner spinner;
    const auto drive = [&] {
      if (mutex_.try_lock_politely()) {
        drive_locked();
        mutex_.unlock();
      } else {
        cpu_relax();
      }
      return done();
    };
    const auto clock = [&] {
      caller_rounds_.fetch_add(1, std::memory_order_relaxed);
      return spinner.look();
    };
    const bool is_done = waiter.spin<kRoundsPerClock>(drive, clock);
    callers_.fetch_sub(1, std::memory_order_relaxed);
    if (is_done || !waiter.may_sleep()) return is_done;
  }
  const EventFd& own = thread_event();
  const auto arm_and_drive = [&] {
    const auto held = lock();
    call.sleeper = &own;
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
  call.sleeper = nullptr;
  own.clear();
  return done();
}

bool Node::is_answered_at_once(Call& call) {
  Session& session = *call.session;
  auto& promptness = call.opcode == Opcode::send ? session.calls_promptness : session.operations_promptness;
  if (!promptness.tries()) return false;
  const auto done = [&call] { return call.finished.load(std::memory_order_relaxed); };
  caller_rounds_.store(caller_rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  do {
    for (int i = 0; i < kQuickRounds && !done(); ++i) drive_locked();
  } while (!done() && !mutex_.is_wanted() && now_ns() - call.started_ns < kQuickNs);
  if (!done()) {
    promptness.late();
    return false;
  }
  promptness.prompt();
  return call.outcome == Outcome::ok;
}

void Node::linger() {
  callers_.fetch_add(1, std::memory_order_relaxed);
  Spinner spinner;
  const auto drive = [&] {
    if (mutex_.try_lock_politely()) {
      const bool found = drive_locked();
      mutex_.unlock();
      return found;
    }
    cpu_relax();
    return false;
  };
  Waiter waiter(uint64_t{options_.busy_poll_us} * 1000, kNever);
  const bool found = waiter.spin<1>(drive, [&] { return spinner.look(); });
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
  uint64_t now = spinner.look(), idle_since = now, seen_callers = 0;
  int finds = 0, back_off_ms = kShortestBackOffMs;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (options_.by_loop) {
      stand_in();
      continue;
    }
    bool found = false;
    if (mutex_.try_lock_politely()) {
      // Several rounds, as the lock and the clock cost as much as a poll.
      for (int i = 0; i < kRoundsPerClock && !found && !is_contended(); ++i) found = drive_locked();
      tick_if_due(now);
      mutex_.unlock();
    } else {
      cpu_relax();
    }
    const uint64_t caller_rounds = caller_rounds_.load(std::memory_order_relaxed);
    if (callers_.load(std::memory_order_relaxed) > 0 || caller_rounds != seen_callers) {
      // They drive better than this thread would: without an event, on the core that wants the answer.
      seen_callers = caller_rounds;
      pollfd stop{.fd = stop_event_.get(), .events = POLLIN, .revents = 0};
      ::poll(&stop, 1, back_off_ms);
      back_off_ms = std::min(2 * back_off_ms, kLongestBackOffMs);
      now = spinner.look_rested();
      continue;
    }
    back_off_ms = kShortestBackOffMs;
    if (found) {
      idle_since = 0;  // that is, since the next look at the clock
      if (++finds % kRoundsPerClock != 0) continue;
    }
    // Who does not spin does not yield either: it would wait behind whoever is busy, with work at the door.
    now = spin_ns == 0 && options_.sleeps ? now_ns() : spinner.look();
    if (idle_since == 0) idle_since = now;
    if (!options_.sleeps || now - idle_since < spin_ns) continue;
    {
      const auto held = lock();
      arm();
      found = drive_locked();
    }
    if (!found) sleep(kTickMs);
    idle_since = found ? 0 : idle_since;
    now = spinner.look_rested();
  }
}

// The loop drives. If it has not for a tick, this thread does, until the loop is back.
void Node::stand_in() {
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
