// A descriptor that becomes readable when it is signalled or when a timer expires: an eventfd and a timerfd
// in one epoll set.
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "util/fd.h"

namespace verbena::fake {

class TimedEvent {
 public:
  TimedEvent()
      : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
        both_(::epoll_create1(EPOLL_CLOEXEC)) {
    watch(event_.get());
    watch(timer_.get());
  }

  int fileno() const { return both_.get(); }
  void signal() const { event_.signal(); }
  void clear() const {
    event_.clear();
    uint64_t expirations;
    [[maybe_unused]] const ssize_t taken = ::read(timer_.get(), &expirations, sizeof expirations);
  }
  void signal_after_ms(uint32_t milliseconds) const {
    const itimerspec when = {.it_interval = {},
                             .it_value = {.tv_sec = milliseconds / 1000,
                                          .tv_nsec = static_cast<long>(milliseconds % 1000) * 1'000'000}};
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  }

 private:
  void watch(int fd) const {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (fd < 0 || ::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      throw Error("fd_limit", "connect", "cannot make a timer and an epoll set", errno);
    }
  }

  EventFd event_;
  UniqueFd timer_, both_;
};

}  // namespace verbena::fake
