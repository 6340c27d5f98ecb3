// The progress thread of a software context: an epoll set, the doorbell that wakes the thread, and the
// completion queues whose pollers it checks. Shared by the wires that have one (shm, iwarp, quic); what the
// thread does is the wire's own function.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "util/fd.h"

namespace verbena::soft {

class PolledCompletionQueue;

class ProgressThread {
 public:
  ProgressThread();  // throws fd_limit
  ~ProgressThread() { stop(); }

  // Runs `body` on a new thread of this name (at most 15 characters). Called once.
  void start(const char* name, std::function<void(const std::stop_token&)> body);
  void stop();  // returns when the thread has ended; idempotent

  void wake() const { doorbell_.signal(); }
  void clear_doorbell() const { doorbell_.clear(); }
  int doorbell() const { return doorbell_.get(); }
  int epoll() const { return epoll_.get(); }

  void add(PolledCompletionQueue& cq);
  void remove(PolledCompletionQueue& cq);
  // Calls check_pollers() of each busy-polled queue. Returns the milliseconds until the next check, or
  // INT_MAX when no queue is busy-polled.
  int check_polled_queues();

 private:
  EventFd doorbell_;
  UniqueFd epoll_;
  std::mutex cqs_mutex_;
  std::set<PolledCompletionQueue*> cqs_;
  std::jthread thread_;
};

}  // namespace verbena::soft
