// UniqueFd, an owned file descriptor; UnsharedFd, one that a forked child does not keep open; and EventFd,
// with which objects of the core wake threads in poll(2). May depend on util/ only.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "util/error.h"
#include "util/forks.h"

namespace verbena {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// fork() closes the descriptor in the child, where this object is dead.
class UnsharedFd {
 public:
  UnsharedFd() = default;
  UnsharedFd(UniqueFd fd) : fd_(fd.release()), forks_(forks()) {  // NOLINT: converts implicitly
    if (fd_ >= 0) close_in_child(fd_);
  }
  UnsharedFd(UnsharedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), forks_(other.forks_) {}
  UnsharedFd& operator=(UnsharedFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    forks_ = other.forks_;
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~UnsharedFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  bool is_inherited() const { return forks_ != forks(); }
  void reset() {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0 || is_inherited()) return;  // a child: the number may mean another descriptor now
    close_unshared(fd);
  }

 private:
  int fd_ = -1;
  uint32_t forks_ = 0;
};

class EventFd {
 public:
  EventFd() : fd_(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
    if (!fd_) throw Error("fd_limit", "create eventfd", "eventfd() failed", errno);
  }

  int get() const { return fd_.get(); }
  bool is_inherited() const { return fd_.is_inherited(); }
  void signal() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(
        fd_.get(), &one, sizeof one);  // EAGAIN: the counter is at its maximum, so the descriptor is readable
  }
  void clear() const {
    uint64_t count;
    [[maybe_unused]] const ssize_t taken = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  UnsharedFd fd_;
};

}  // namespace verbena
