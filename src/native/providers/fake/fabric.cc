#include "providers/fake/fabric.h"

#include <utility>

#include "providers/fake/completion_queue.h"
#include "providers/fake/queue_pair.h"

namespace verbena::fake {

Fabric& Fabric::instance() {
  static Fabric& fabric = *new Fabric;
  return fabric;
}

void Fabric::add(const Address& address, FakeQueuePair& qp) {
  const std::lock_guard lock(mutex_);
  ports_[address].qp = &qp;
}

void Fabric::remove(const Address& address) {
  const std::lock_guard quiet(driving_);
  const std::lock_guard lock(mutex_);
  ports_.erase(address);
  timers_.erase(address);
}

void Fabric::send(const Address& to, Packet packet) {
  std::shared_ptr<const PacketTap> tap;
  {
    const std::lock_guard lock(mutex_);
    tap = tap_;
  }
  if (tap) (*tap)(packet);
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(to);
  if (port == ports_.end()) return;
  port->second.inbox.push_back(std::move(packet));
  schedule(to, port->second);
}

bool Fabric::receive(const Address& me, Packet& packet) {
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(me);
  if (port == ports_.end() || port->second.inbox.empty()) return false;
  packet = std::move(port->second.inbox.front());
  port->second.inbox.pop_front();
  return true;
}

void Fabric::drop_packets(const Address& me) {
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(me);
  if (port != ports_.end()) port->second.inbox.clear();
}

void Fabric::set_timer(const Address& me, uint64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  const auto port = ports_.find(me);
  if (port == ports_.end()) return;
  port->second.deadline_ns = deadline_ns;
  if (deadline_ns == 0) {
    timers_.erase(me);
    return;
  }
  timers_.insert(me);
}

void Fabric::run() {
  for (;;) {
    if (!driving_.try_lock()) return;  // the thread that holds it does this work as well
    while (FakeQueuePair* qp = next_scheduled()) qp->drive();
    driving_.unlock();
    const std::lock_guard lock(mutex_);
    if (!scheduled_.empty()) continue;  // work arrived after the last check, while driving_ was held
    if (!timers_.empty()) {
      for (FakeCompletionQueue* cq : std::exchange(sleepers_, {})) cq->signal();
    }
    return;
  }
}

FakeQueuePair* Fabric::next_scheduled() {
  const std::lock_guard lock(mutex_);
  while (!scheduled_.empty()) {
    const Address address = scheduled_.front();
    scheduled_.pop_front();
    const auto port = ports_.find(address);
    if (port == ports_.end()) continue;  // it was closed
    port->second.is_scheduled = false;
    return port->second.qp;
  }
  return nullptr;
}

void Fabric::schedule(const Address& address, Port& port) {
  if (std::exchange(port.is_scheduled, true)) return;
  scheduled_.push_back(address);
}

void Fabric::tick(uint64_t nanoseconds) {
  {
    const std::lock_guard lock(mutex_);
    advance_clock(nanoseconds);
  }
  run();
}

void Fabric::advance_clock(uint64_t nanoseconds) {
  const uint64_t now = now_.fetch_add(nanoseconds, std::memory_order_relaxed) + nanoseconds;
  for (const Address& address : timers_) {
    Port& port = ports_.at(address);
    if (port.deadline_ns <= now) schedule(address, port);
  }
}

void Fabric::sleep(FakeCompletionQueue& cq) {
  const std::lock_guard lock(mutex_);
  if (timers_.empty()) {
    sleepers_.insert(&cq);
    return;
  }
  advance_clock(kSleepTime);
  cq.signal();
}

void Fabric::remove_sleeper(FakeCompletionQueue& cq) {
  const std::lock_guard lock(mutex_);
  sleepers_.erase(&cq);
}

void Fabric::set_tap(PacketTap tap) {
  const std::lock_guard lock(mutex_);
  tap_ = tap ? std::make_shared<const PacketTap>(std::move(tap)) : nullptr;
}

}  // namespace verbena::fake
