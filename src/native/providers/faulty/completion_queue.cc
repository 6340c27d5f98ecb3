#include "providers/faulty/completion_queue.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "providers/faulty/queue_pair.h"

namespace verbena::faulty {

FaultyCompletionQueue::FaultyCompletionQueue(std::shared_ptr<CompletionQueue> receives)
    : receives_(std::move(receives)), bells_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!bells_) throw Error("fd_limit", "create completion queue", "epoll_create1() failed", errno);
  watch(own_bell_.get());
  watch(receives_->fileno());
}

size_t FaultyCompletionQueue::poll(std::span<Completion> out) {
  collect();
  const std::lock_guard lock(mutex_);
  const size_t taken = std::min(out.size(), ready_.size());
  for (Completion& completion : out.first(taken)) {
    completion = ready_.front().completion;
    if (const auto& unpolled = ready_.front().unpolled) --*unpolled;
    ready_.pop_front();
  }
  return taken;
}

// Moves everything that has completed into ready_.
void FaultyCompletionQueue::collect() const {
  const auto qps = members();
  for (const auto& qp : qps) qp->advance();
  if (has_lost()) {
    for (const auto& qp : qps) qp->enter_error();
  }
  const std::lock_guard lock(mutex_);
  std::array<Completion, 16> batch;
  while (ready_.size() < capacity()) {
    const size_t count =
        receives_->poll(std::span(batch).first(std::min(batch.size(), capacity() - ready_.size())));
    if (count == 0) break;
    for (const Completion& completion : std::span(batch).first(count))
      ready_.push_back({completion, nullptr});
  }
}

void FaultyCompletionQueue::deliver(const Completion& completion,
                                    const std::shared_ptr<std::atomic<size_t>>& unpolled) {
  const std::lock_guard lock(mutex_);
  if (ready_.size() >= capacity()) {
    lost_ = true;
    return;
  }
  ready_.push_back({completion, unpolled});
  ++*unpolled;
}

void FaultyCompletionQueue::announce() {
  const std::lock_guard lock(mutex_);
  const auto wakes = [this](const Ready& ready) {
    return armed_ == Armed::any || ready.completion.status != Status::success;
  };
  if (armed_ == Armed::no || std::ranges::none_of(ready_, wakes)) return;
  armed_ = Armed::no;
  own_bell_.signal();
}

// collect() is needed because completions that exist by now do not signal. The inner descriptors may also
// signal for an unsignaled request, or only to advance a held one: the caller then finds nothing and arms
// again.
void FaultyCompletionQueue::arm(bool solicited_only) {
  collect();
  {
    const std::lock_guard lock(mutex_);
    if (armed_ != Armed::any) armed_ = solicited_only ? Armed::failed : Armed::any;
  }
  receives_->arm(solicited_only);
  for (const auto& qp : members()) qp->arm();
}

void FaultyCompletionQueue::acknowledge() {
  receives_->acknowledge();
  for (const auto& qp : members()) qp->acknowledge();
  const std::lock_guard lock(mutex_);
  own_bell_.clear();
}

bool FaultyCompletionQueue::overrun() const {
  collect();  // the inner queues never overrun: an overrun of this queue shows only now
  return has_lost();
}

bool FaultyCompletionQueue::has_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_ || receives_->overrun();
}

std::vector<std::shared_ptr<FaultyQueuePair>> FaultyCompletionQueue::members() const {
  std::vector<std::shared_ptr<FaultyQueuePair>> alive;
  const std::lock_guard lock(mutex_);
  for (const Member& member : members_) {
    if (auto qp = member.qp.lock()) alive.push_back(std::move(qp));
  }
  return alive;
}

void FaultyCompletionQueue::attach(const std::shared_ptr<FaultyQueuePair>& qp) {
  const std::lock_guard lock(mutex_);
  members_.push_back({qp.get(), qp});
  if (armed_ != Armed::no) qp->arm();
}

void FaultyCompletionQueue::detach(const FaultyQueuePair& qp) {
  const std::lock_guard lock(mutex_);
  std::erase_if(members_, [&qp](const Member& member) { return member.key == &qp; });
}

void FaultyCompletionQueue::watch(int fd) {
  epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(bells_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error("fd_limit", "watch completion queue", "epoll_ctl() failed", errno);
  }
}

void FaultyCompletionQueue::unwatch(int fd) { ::epoll_ctl(bells_.get(), EPOLL_CTL_DEL, fd, nullptr); }

}  // namespace verbena::faulty
