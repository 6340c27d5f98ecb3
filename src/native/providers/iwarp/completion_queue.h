// A completion queue that knows whether somebody is spinning on it. While one is, the progress thread leaves
// the sockets of its queue pairs alone: the spinner reads them itself. When the spinning stops, they are
// watched again.
#pragma once

#include <atomic>
#include <memory>

#include "providers/soft/completion_queue.h"

namespace verbena::iwarp {

class IwarpContext;

class IwarpCompletionQueue final : public soft::SoftCompletionQueue {
 public:
  IwarpCompletionQueue(std::shared_ptr<IwarpContext> context, uint32_t depth);
  ~IwarpCompletionQueue() override;

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;

  bool is_polled() const { return polled_.load(std::memory_order_relaxed); }
  // For the progress thread, every few milliseconds: ends the polled mode when nobody polled meanwhile.
  void check_pollers();

  // A system call per member and poll is too much for many: then only the progress thread reads.
  void count_member(int change) { members_.fetch_add(change, std::memory_order_relaxed); }
  bool is_crowded() const { return members_.load(std::memory_order_relaxed) > kFew; }

 private:
  static constexpr int kFew = 8;

  void watch_members();

  const std::shared_ptr<IwarpContext> context_;
  std::atomic<int> members_{0};
  std::atomic<uint32_t> polls_{0};
  uint32_t polls_seen_ = 0;
  std::atomic<bool> polled_{false};
};

}  // namespace verbena::iwarp
