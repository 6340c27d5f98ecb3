// A completion queue whose queue pairs need no doorbell while somebody spins on it.
#pragma once

#include <memory>

#include "providers/soft/spun_completion_queue.h"

namespace verbena::shm {

class ShmContext;

class ShmCompletionQueue final : public soft::SpunCompletionQueue {
 public:
  ShmCompletionQueue(std::shared_ptr<ShmContext> context, uint32_t depth);
  ~ShmCompletionQueue() override;

 private:
  void spinning_changed(bool is_polled) override;

  const std::shared_ptr<ShmContext> context_;
};

}  // namespace verbena::shm
