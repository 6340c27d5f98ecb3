// The queue pairs of one faulty provider, so that a broken link is noticed at both ends if both are here.
// Without a connection manager the peer is not informed: it would notice only by its own retries.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "verbs/provider.h"

namespace verbena::faulty {

// Contains inner queue pairs only. Numbers are unique on one device; of two equal ones the later is found.
class Peers {
 public:
  void add(const std::shared_ptr<QueuePair>& qp) {
    const std::lock_guard lock(mutex_);
    qps_[qp->number()] = qp;
  }

  void remove(const QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    qps_.erase(qp.number());
  }

  // The queue pair that is connected to this one, or empty.
  std::shared_ptr<QueuePair> peer_of(const QueuePair& qp) const {
    std::shared_ptr<QueuePair> peer;
    {
      const std::lock_guard lock(mutex_);
      const auto found = qps_.find(qp.attributes().dest_qp_num);
      if (found != qps_.end()) peer = found->second.lock();
    }
    return peer && peer->attributes().dest_qp_num == qp.number() ? peer : nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, std::weak_ptr<QueuePair>> qps_;
};

}  // namespace verbena::faulty
