// The wrapped completion queue: receives come from one inner queue, sends from the queue pairs that use it.
// fileno() is an epoll set of the inner queues' descriptors, the delay timers and its own eventfd. Lock
// order: a queue pair's lock before mutex_.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "util/fd.h"
#include "verbs/provider.h"

namespace verbena::faulty {

class FaultyQueuePair;

class FaultyCompletionQueue final : public CompletionQueue {
 public:
  explicit FaultyCompletionQueue(std::shared_ptr<CompletionQueue> receives);

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;
  int fileno() const override { return bells_.get(); }
  void acknowledge() override;
  uint32_t capacity() const override { return receives_->capacity(); }
  bool overrun() const override;
  void close() override { receives_->close(); }

  const std::shared_ptr<CompletionQueue>& receives() const { return receives_; }
  void attach(const std::shared_ptr<FaultyQueuePair>& qp);
  void detach(const FaultyQueuePair& qp);
  void watch(int fd);
  void unwatch(int fd);
  // Called by a queue pair, in the order in which its requests end. `unpolled` counts those that poll() has
  // not returned yet.
  void deliver(const Completion& completion, const std::shared_ptr<std::atomic<size_t>>& unpolled);
  // Signals completions that a post produced. Completions that polling produces were signalled by an inner
  // descriptor before.
  void announce();

 private:
  struct Member {
    const FaultyQueuePair* key;
    std::weak_ptr<FaultyQueuePair> qp;
  };
  struct Ready {
    Completion completion;
    std::shared_ptr<std::atomic<size_t>> unpolled;  // empty for a receive
  };
  enum class Armed : uint8_t { no, any, failed };

  std::vector<std::shared_ptr<FaultyQueuePair>> members() const;
  void collect() const;
  bool has_lost() const;

  const std::shared_ptr<CompletionQueue> receives_;
  const UniqueFd bells_;
  const EventFd own_bell_;
  mutable std::mutex mutex_;
  std::vector<Member> members_;
  mutable std::deque<Ready> ready_;
  Armed armed_ = Armed::no;
  bool lost_ = false;
};

}  // namespace verbena::faulty
