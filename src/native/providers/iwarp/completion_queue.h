// A completion queue whose sockets are not watched by the progress thread while a thread busy-polls it: the
// polling thread reads them itself.
#pragma once

#include <atomic>
#include <memory>

#include "providers/soft/polled_completion_queue.h"

namespace verbena::iwarp {

class IwarpCompletionQueue final : public soft::PolledCompletionQueue {
 public:
  IwarpCompletionQueue(std::shared_ptr<soft::ProgressThread> progress, uint32_t depth)
      : PolledCompletionQueue(std::move(progress), depth, kBusyPolls) {}
  ~IwarpCompletionQueue() override { stop_checks(); }

  // A poll costs a system call for each member: with many members only the progress thread reads.
  void count_member(int change) { members_.fetch_add(change, std::memory_order_relaxed); }
  bool is_crowded() const { return members_.load(std::memory_order_relaxed) > kFewMembers; }
  bool is_empty() const { return members_.load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr int kFewMembers = 8;
  static constexpr uint32_t kBusyPolls = 128;  // fewer than shm: each poll is a system call per queue pair

  void polling_changed(bool is_polled) override;
  bool may_be_polled() const override { return !is_crowded() && !is_empty(); }

  std::atomic<int> members_{0};
};

}  // namespace verbena::iwarp
