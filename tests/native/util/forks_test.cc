// Descriptors that a forked child does not keep open, and objects that know that they were inherited.
#include "util/forks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"
#include "util/fd.h"
#include "util/waiter.h"

using namespace verbena;

namespace {

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Whether `body` returned true in a forked child.
template <typename Body>
bool in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body() ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST("a child closes unshared descriptors, and no others") {
  const UniqueFd shared = open_null();
  std::vector<UnsharedFd> unshared;
  for (int i = 0; i < 200; ++i) unshared.emplace_back(open_null());
  CHECK(in_child([&] {
    for (const UnsharedFd& one : unshared) {
      if (is_open(one.get()) || !one.is_inherited()) return false;
    }
    return is_open(shared.get());
  }));
  for (const UnsharedFd& one : unshared) CHECK(is_open(one.get()) && !one.is_inherited());
}

TEST("an inherited object does not close the descriptor that has its number now") {
  UnsharedFd inherited = open_null();
  const int number = inherited.get();
  CHECK(in_child([&] {
    const UnsharedFd own = open_null();
    if (own.get() != number) return false;
    inherited.reset();
    if (!is_open(number)) return false;
    return in_child([&] { return !is_open(number); });  // a child of the child closes it as well
  }));
  inherited.reset();
  CHECK(!is_open(number));
}

TEST("a moved or closed descriptor is not on the list any longer") {
  UnsharedFd one = open_null();
  UnsharedFd other = std::move(one);
  const int number = other.get();
  other = UnsharedFd();
  const UniqueFd shared = open_null();
  CHECK(shared.get() == number);
  CHECK(in_child([&] { return is_open(number); }));
}

TEST("forks are counted in the child") {
  const uint32_t before = forks();
  CHECK(in_child([&] { return forks() == before + 1; }));
  CHECK(forks() == before);
}

TEST("a child has an event of its own") {
  const EventFd& event = thread_event();
  event.signal();
  CHECK(in_child([] {
    const EventFd& own = thread_event();
    own.clear();
    return !own.is_inherited();
  }));
  CHECK(sleep_on(event.get(), event.get(), 0).first);
  event.clear();
}

TEST("a fork while other threads open and close descriptors") {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) const UnsharedFd one = open_null();
    });
  }
  for (int i = 0; i < 50; ++i) CHECK(in_child([] { return UnsharedFd(open_null()).get() >= 0; }));
  stop = true;
}

RUN_TESTS()
