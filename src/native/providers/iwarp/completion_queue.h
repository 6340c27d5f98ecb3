// A completion queue whose sockets are left alone by the progress thread while somebody spins on it: the
// spinner reads them itself.
#pragma once

#include <atomic>
#include <memory>

#include "providers/soft/spun_completion_queue.h"

namespace verbena::iwarp {

class IwarpContext;

class IwarpCompletionQueue final : public soft::SpunCompletionQueue {
 public:
  IwarpCompletionQueue(std::shared_ptr<IwarpContext> context, uint32_t depth);
  ~IwarpCompletionQueue() override;

  // A system call per member and poll is too much for many: then only the progress thread reads.
  void count_member(int change) { members_.fetch_add(change, std::memory_order_relaxed); }
  bool is_crowded() const { return members_.load(std::memory_order_relaxed) > kFew; }
  bool is_empty() const { return members_.load(std::memory_order_relaxed) == 0; }

 private:
  static constexpr int kFew = 8;

  void spinning_changed(bool is_polled) override;
  bool may_be_spun() const override { return !is_crowded() && !is_empty(); }

  const std::shared_ptr<IwarpContext> context_;
  std::atomic<int> members_{0};
};

}  // namespace verbena::iwarp
