// A completion queue whose queue pairs turn their doorbells off while a thread busy-polls it.
#pragma once

#include <memory>

#include "providers/soft/polled_completion_queue.h"

namespace verbena::shm {

class ShmCompletionQueue final : public soft::PolledCompletionQueue {
 public:
  ShmCompletionQueue(std::shared_ptr<soft::ProgressThread> progress, uint32_t depth)
      : PolledCompletionQueue(std::move(progress), depth, kBusyPolls) {}
  ~ShmCompletionQueue() override { stop_checks(); }

 private:
  static constexpr uint32_t kBusyPolls = 1024;  // fewer would wake the progress thread for short waits

  void polling_changed(bool is_polled) override;
};

}  // namespace verbena::shm
