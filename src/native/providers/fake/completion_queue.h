// The soft completion queue on virtual time: polling advances the clock, and a sleeping thread is woken when
// a timer needs it.
#pragma once

#include "providers/fake/fabric.h"
#include "providers/soft/completion_queue.h"

namespace verbena::fake {

class FakeCompletionQueue final : public soft::SoftCompletionQueue {
 public:
  using SoftCompletionQueue::SoftCompletionQueue;
  ~FakeCompletionQueue() override { Fabric::instance().remove_sleeper(*this); }

  size_t poll(std::span<Completion> out) override {
    Fabric::instance().tick(kPollTime);
    return SoftCompletionQueue::poll(out);
  }
  void arm(bool solicited_only) override {
    SoftCompletionQueue::arm(solicited_only);
    Fabric::instance().sleep(*this);
  }
  void signal() const { event().signal(); }
};

}  // namespace verbena::fake
