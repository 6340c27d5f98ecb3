// A completion queue that knows whether somebody is spinning on it. While one is, a wire can spare itself
// doorbells or watched sockets: the spinner sees what arrives. When the spinning stops, the wire's progress
// thread takes over again.
#pragma once

#include <atomic>

#include "providers/soft/completion_queue.h"

namespace verbena::soft {

class SpunCompletionQueue : public SoftCompletionQueue {
 public:
  // `spinner_polls`: so many without arming it in between make a spinner. Whoever arms, looks once more and
  // sleeps is none, however often it does so.
  SpunCompletionQueue(uint32_t depth, uint32_t spinner_polls)
      : SoftCompletionQueue(depth), spinner_polls_(spinner_polls) {}

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;

  bool is_polled() const { return polled_.load(std::memory_order_relaxed); }
  // For the progress thread: ends the polled mode when nobody polled since the last time. In how many
  // milliseconds to come back, if it goes on: each time wakes somebody on the core of whoever spins, who is
  // the less likely to leave the longer it has stayed.
  int check_pollers();

 protected:
  // A spinner came (and check_pollers() is to be called from now on), or was seen to leave. One that just
  // stops is not: the progress thread finds out.
  virtual void spinning_changed(bool is_polled) = 0;
  virtual bool may_be_spun() const { return true; }

 private:
  static constexpr int kFirstCheckMs = 2, kLastCheckMs = 16;

  void become_spun();
  void count_from_here() {
    counted_from_.store(polls_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  const uint32_t spinner_polls_;
  std::atomic<uint32_t> polls_{0}, counted_from_{0};
  uint32_t polls_seen_ = 0;
  std::atomic<int> check_ms_{kFirstCheckMs};
  std::atomic<bool> polled_{false};
};

}  // namespace verbena::soft
