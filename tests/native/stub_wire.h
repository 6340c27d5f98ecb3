// A completion queue and a queue pair without a wire: the test says what completes, and when.
#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "util/fd.h"
#include "verbs/provider.h"

namespace stub {

using namespace verbena;

class Queue : public CompletionQueue {
 public:
  explicit Queue(uint32_t capacity = 256) : capacity_(capacity) {}

  void push(const Completion& completion) {
    const std::lock_guard lock(mutex_);
    ready_.push_back(completion);
    if (armed_) event_.signal();
    armed_ = false;
  }
  size_t poll(std::span<Completion> out) override {
    const std::lock_guard lock(mutex_);
    ++polls_;
    largest_batch_ = std::max(largest_batch_, out.size());
    size_t count = 0;
    for (; count < out.size() && !ready_.empty(); ready_.pop_front()) out[count++] = ready_.front();
    return count;
  }
  void arm(bool) override {
    const std::lock_guard lock(mutex_);
    armed_ = true;
  }
  int fileno() const override { return event_.get(); }
  void acknowledge() override { event_.clear(); }
  uint32_t capacity() const override { return capacity_; }
  bool overrun() const override { return false; }
  void close() override {}
  bool armed() {
    const std::lock_guard lock(mutex_);
    return armed_;
  }
  size_t polls() {
    const std::lock_guard lock(mutex_);
    return polls_;
  }
  size_t largest_batch() {
    const std::lock_guard lock(mutex_);
    return largest_batch_;
  }

 private:
  const uint32_t capacity_;
  std::mutex mutex_;
  std::deque<Completion> ready_;
  bool armed_ = false;
  size_t polls_ = 0, largest_batch_ = 0;
  EventFd event_;
};

// Ends its requests in order: at once, or `held` until the test lets some go. The request at `fail_at` fails.
class Pair : public QueuePair {
 public:
  explicit Pair(Queue& queue, uint32_t depth = 128) : queue_(queue), depth_(depth) {}

  PostResult post_send(std::span<const SendRequest> batch) override {
    const std::lock_guard lock(mutex_);
    size_t accepted = 0;
    for (const SendRequest& request : batch) {
      if (held_.size() >= depth_) return {accepted, PostError::full};
      if (refuse_at == posted) return {accepted, PostError::message_too_long};
      held_.push_back(request);
      largest_backlog = std::max(largest_backlog, held_.size());
      ++accepted;
      ++posted;
      if (!hold) end_one();
    }
    return {accepted, PostError::none};
  }
  void let_go(size_t count) {
    const std::lock_guard lock(mutex_);
    for (; count > 0 && !held_.empty(); --count) end_one();
  }
  PostResult post_recv(std::span<const RecvRequest>) override { return {0, PostError::bad_state}; }
  uint32_t number() const override { return 7; }
  QpState state() const override { return broken ? QpState::err : QpState::rts; }
  QpLimits limits() const override { return {.max_send = depth_}; }
  QpAttributes attributes() const override { return {}; }
  void modify(const QpAttributes&) override {}
  Capabilities capabilities() const override { return {}; }
  void close() override {}

  bool hold = false, broken = false;
  size_t fail_at = SIZE_MAX, refuse_at = SIZE_MAX, posted = 0, ended = 0, largest_backlog = 0;

 private:
  void end_one() {
    const SendRequest request = held_.front();
    held_.pop_front();
    Status status = broken ? Status::wr_flush_err : Status::success;
    if (ended++ == fail_at) {
      status = Status::rem_access_err;
      broken = true;
    }
    if (status != Status::success || (request.flags & send_flag::signaled)) {
      queue_.push({.id = request.id, .status = status, .opcode = WcOpcode::read, .qp_num = number()});
    }
  }

  Queue& queue_;
  const uint32_t depth_;
  std::mutex mutex_;
  std::deque<SendRequest> held_;
};

}  // namespace stub
