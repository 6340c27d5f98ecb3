// A completion queue that knows whether somebody is spinning on it. While one is, its queue pairs need no
// doorbell: the spinner sees messages itself. When the spinning stops, the progress thread takes over again.
#pragma once

#include <atomic>
#include <memory>

#include "providers/soft/completion_queue.h"

namespace verbena::shm {

class ShmContext;

class ShmCompletionQueue final : public soft::SoftCompletionQueue {
 public:
  ShmCompletionQueue(std::shared_ptr<ShmContext> context, uint32_t depth);
  ~ShmCompletionQueue() override;

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;

  bool is_polled() const { return polled_.load(std::memory_order_relaxed); }
  // For the progress thread, every few milliseconds: ends the polled mode when nobody polled since the last
  // call.
  void check_pollers();

 private:
  void set_bells(bool armed);

  const std::shared_ptr<ShmContext> context_;
  std::atomic<uint32_t> polls_{0};
  uint32_t polls_seen_ = 0;
  std::atomic<bool> polled_{false};
};

}  // namespace verbena::shm
