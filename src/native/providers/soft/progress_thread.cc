#include "providers/soft/progress_thread.h"

#include <sys/epoll.h>

#include <algorithm>
#include <climits>

#include "providers/soft/polled_completion_queue.h"
#include "util/error.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::soft {

ProgressThread::ProgressThread() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw Error("fd_limit", "open device", "epoll_create1() failed", errno);
}

void ProgressThread::start(const char* name, std::function<void(const std::stop_token&)> body) {
  thread_ = std::jthread([name, body = std::move(body)](const std::stop_token& stop) {
    name_thread(name);
    or_end_process(name, [&] { body(stop); });
  });
}

void ProgressThread::stop() {
  thread_.request_stop();
  wake();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::add(PolledCompletionQueue& cq) {
  const std::lock_guard lock(cqs_mutex_);
  cqs_.insert(&cq);
}

void ProgressThread::remove(PolledCompletionQueue& cq) {
  const std::lock_guard lock(cqs_mutex_);
  cqs_.erase(&cq);
}

int ProgressThread::check_polled_queues() {
  const std::lock_guard lock(cqs_mutex_);
  int next_ms = INT_MAX;
  for (PolledCompletionQueue* cq : cqs_) {
    if (cq->is_polled()) next_ms = std::min(next_ms, cq->check_pollers());
  }
  return next_ms;
}

}  // namespace verbena::soft
