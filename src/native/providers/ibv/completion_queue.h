// A device's completion queue with its own completion channel, whose descriptor is fileno().
#pragma once

#include <atomic>
#include <deque>
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

class IbvCompletionQueue final : public CompletionQueue, public Removable {
 public:
  IbvCompletionQueue(std::shared_ptr<IbvContext> context, uint32_t depth);
  ~IbvCompletionQueue() override;

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;
  int fileno() const override { return fd_; }
  void acknowledge() override;
  uint32_t capacity() const override { return capacity_; }
  bool overrun() const override { return overrun_.load(std::memory_order_relaxed); }
  void close() override {}  // its queue pairs hold it; the last holder destroys it
  void on_removal() override;

  ibv_cq* get() const { return cq_; }
  const IbvContext& context() const { return *context_; }
  // Makes room for the completions of another queue pair's binds, beyond capacity(). False: the device
  // cannot.
  bool add_room(uint32_t completions);
  void give_back_room(uint32_t completions);
  // Takes completions from the device for a later poll(), so that those of binds take effect now.
  void collect();
  void add(std::span<const Completion> completions);  // for a later poll()

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

  // All under poll_lock_.
  size_t poll_device(std::span<Completion> out);
  PostedRequests* find(uint32_t queue) const;
  void rebuild(std::vector<Entry> entries);
  std::vector<Entry> entries() const;

  const std::shared_ptr<IbvContext> context_;
  DeviceUse use_;
  ibv_comp_channel* channel_;  // null after the removal, as the next
  ibv_cq* cq_;
  int fd_;  // the channel's; after the removal of nothing, since programs may still watch it
  uint32_t capacity_ = 0;
  std::atomic<bool> overrun_{false};
  Spinlock poll_lock_;
  std::deque<Completion> collected_;
  uint32_t room_ = 0;         // for completions of binds
  std::vector<Entry> table_;  // open addressing by queue number; at most half full
  std::mutex events_mutex_;
  std::mutex members_mutex_;
  std::vector<IbvQueuePair*> members_;
};

}  // namespace verbena::ibv
