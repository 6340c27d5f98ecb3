// Who drives a node, and how they sleep. Nobody misses anything, because whoever is about to sleep arms the
// queues and then looks once more, and the node's thread sleeps on the queues' events or ticks.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "transport/node/node.h"
#include "transport/node/spin_rule.h"
#include "util/clock.h"
#include "util/leave_core.h"
#include "util/spinlock.h"
#include "util/thread_name.h"
#include "verbs/router.h"

namespace verbena::transport {
namespace {

constexpr uint64_t kSliceNs = 20'000'000;
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

const EventFd& thread_event() {
  thread_local const EventFd event;
  return event;
}

// True: the queues have something, and whoever slept should drive.
bool sleep_on(const EventFd& event, int queues, uint64_t timeout_ns) {
  pollfd fds[] = {{.fd = event.get(), .events = POLLIN, .revents = 0},
                  {.fd = queues, .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000),
                         .tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000)};
  ::ppoll(fds, 2, &timeout, nullptr);
  if (fds[0].revents & POLLIN) event.clear();
  return fds[1].revents & POLLIN;
}

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

uint64_t Node::spin_end(uint64_t now) const {
  return options_.sleeps ? now + uint64_t{options_.busy_poll_us} * 1000 : ~uint64_t{0};
}

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
  callers_.fetch_add(1, std::memory_order_relaxed);
  Spinner spinner;
  uint64_t now = spinner.look();
  const uint64_t spin_until = std::min(deadline_ns, spin_end(now));
  bool is_done = false;
  while (!is_done && now < spin_until) {
    for (int i = 0; i < kRoundsPerClock && !is_done; ++i) {
      if (mutex_.try_lock_politely()) {
        drive_locked();
        mutex_.unlock();
      } else {
        cpu_relax();
      }
      is_done = done();
    }
    caller_rounds_.fetch_add(1, std::memory_order_relaxed);
    if (!is_done) now = spinner.look();
  }
  callers_.fetch_sub(1, std::memory_order_relaxed);
  if (is_done || now >= deadline_ns) return is_done;

  const EventFd& own = thread_event();
  {
    const auto held = lock();
    if (done()) return true;
    call.sleeper = &own;
    arm();
    drive_locked();
  }
  while (!(is_done = done()) && (now = now_ns()) < deadline_ns) {
    if (sleep_on(own, epoll_.get(), std::min(kSliceNs, deadline_ns - now))) {
      const auto held = lock();
      arm();
      drive_locked();
    }
    if (stopping_.load(std::memory_order_relaxed)) break;
  }
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
  const uint64_t until = spinner.look() + uint64_t{options_.busy_poll_us} * 1000;
  bool found = false;
  while (!found && spinner.look() < until) {
    if (mutex_.try_lock_politely()) {
      found = drive_locked();
      mutex_.unlock();
    } else {
      cpu_relax();
    }
  }
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
