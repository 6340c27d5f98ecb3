// A device's completion queue with its own completion channel, whose descriptor is fileno().
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "providers/ibv/context.h"
#include "providers/ibv/slots.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvQueuePair;

class IbvCompletionQueue final : public CompletionQueue {
 public:
  IbvCompletionQueue(std::shared_ptr<IbvContext> context, uint32_t depth);
  ~IbvCompletionQueue() override;

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;
  int fileno() const override { return channel_->fd; }
  void acknowledge() override;
  uint32_t capacity() const override { return static_cast<uint32_t>(cq_->cqe); }
  bool overrun() const override { return overrun_.load(std::memory_order_relaxed); }
  void close() override {}  // its queue pairs hold it; the last holder destroys it

  ibv_cq* get() const { return cq_; }
  const IbvContext& context() const { return *context_; }

  // The requests that complete here, by queue number; completions of an unknown queue are dropped.
  void attach(uint32_t queue, PostedRequests& requests);
  void detach(uint32_t queue);  // waits until no poll() uses it
  void attach(IbvQueuePair& qp);
  void detach(IbvQueuePair& qp);

  // Completions were lost: returns the queue pairs that must go to ERR.
  std::vector<std::shared_ptr<IbvQueuePair>> on_overrun();

 private:
  struct Entry {
    uint32_t queue = 0;  // 0: unused
    PostedRequests* requests = nullptr;
  };

  PostedRequests* find(uint32_t queue) const;
  void rebuild(std::vector<Entry> entries);
  std::vector<Entry> entries() const;

  const std::shared_ptr<IbvContext> context_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  std::atomic<bool> overrun_{false};
  Spinlock poll_lock_;
  std::vector<Entry> table_;  // open addressing by queue number; at most half full
  std::mutex events_mutex_;
  std::mutex members_mutex_;
  std::vector<IbvQueuePair*> members_;
};

}  // namespace verbena::ibv
