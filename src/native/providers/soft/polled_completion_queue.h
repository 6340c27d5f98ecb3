// A completion queue that detects whether a thread busy-polls it. Meanwhile a wire needs no doorbells and no
// watched sockets, because the polling thread sees what arrives. When the polling stops, the wire's progress
// thread takes over again.
#pragma once

#include <atomic>
#include <memory>

#include "providers/soft/completion_queue.h"
#include "providers/soft/progress_thread.h"

namespace verbena::soft {

class PolledCompletionQueue : public SoftCompletionQueue {
 public:
  // `busy_polls`: the number of polls without an arm() between them that counts as busy polling. A thread
  // that arms the queue, polls once more and sleeps never counts, however often it does so.
  PolledCompletionQueue(std::shared_ptr<ProgressThread> progress, uint32_t depth, uint32_t busy_polls);

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;

  bool is_polled() const { return polled_.load(std::memory_order_relaxed); }
  // For the progress thread: ends the busy-polled mode when there was no poll since the last check. Returns
  // the milliseconds until the next check. Each check takes the core from the polling thread for a moment, so
  // the interval grows: the longer a thread has polled, the less likely it is to stop.
  int check_pollers();

 protected:
  // Ends the calls of check_pollers(). The most derived destructor calls it first: the progress thread must
  // not meet an object that is partly destroyed.
  void stop_checks() { progress_->remove(*this); }
  // Busy polling has begun, or arm() has ended it. A thread that just stops polling is not reported here;
  // check_pollers() finds out.
  virtual void polling_changed(bool is_polled) = 0;
  virtual bool may_be_polled() const { return true; }

 private:
  static constexpr int kFirstCheckMs = 2, kLastCheckMs = 16;

  void begin_polled_mode();
  void restart_count() {
    counted_from_.store(polls_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  const std::shared_ptr<ProgressThread> progress_;
  const uint32_t busy_polls_;
  std::atomic<uint32_t> polls_{0}, counted_from_{0};
  uint32_t polls_seen_ = 0;
  std::atomic<int> check_ms_{kFirstCheckMs};
  std::atomic<bool> polled_{false};
};

}  // namespace verbena::soft
