// Posted receives: the queue of one QP, or one shared by several.
// Gives ReceiveQueue (bounded, no allocation per post) and SoftSharedReceiveQueue around it.
#pragma once

#include <algorithm>
#include <atomic>
#include <array>
#include <mutex>
#include <span>
#include <vector>

#include "util/error.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::soft {

constexpr uint32_t kMaxSges = 16;
constexpr uint32_t kMaxDepth = 1u << 15;

struct PostedReceive {
  uint64_t id = 0;
  uint32_t sge_count = 0;
  std::array<Sge, kMaxSges> sges;

  std::span<const Sge> local() const { return {sges.data(), sge_count}; }
};

class ReceiveQueue {
 public:
  ReceiveQueue(uint32_t depth, uint32_t max_sge) : max_sge_(max_sge), ids_(depth), counts_(depth) {
    if (depth > kMaxDepth) throw Error("limit_exceeded", "create queue", "max_recv is over " + std::to_string(kMaxDepth));
    if (max_sge > kMaxSges) throw Error("limit_exceeded", "create queue", "max_recv_sge is over " + std::to_string(kMaxSges));
    sges_.resize(static_cast<size_t>(depth) * max_sge);
  }

  PostResult post(std::span<const RecvRequest> batch) {
    const std::lock_guard lock(lock_);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].local.size() > max_sge_) return {i, PostError::too_many_sges};
      if (tail_ - head_ == ids_.size()) return {i, PostError::full};
      const size_t slot = tail_ % ids_.size();
      ids_[slot] = batch[i].id;
      counts_[slot] = static_cast<uint32_t>(batch[i].local.size());
      std::copy(batch[i].local.begin(), batch[i].local.end(), sges_.begin() + static_cast<ptrdiff_t>(slot * max_sge_));
      ++tail_;
    }
    return {batch.size(), PostError::none};
  }

  // Moves the oldest posted receive into `out`; false when there is none.
  bool take(PostedReceive& out) {
    const std::lock_guard lock(lock_);
    if (head_ == tail_) return false;
    const size_t slot = head_ % ids_.size();
    out.id = ids_[slot];
    out.sge_count = counts_[slot];
    std::copy_n(sges_.begin() + static_cast<ptrdiff_t>(slot * max_sge_), out.sge_count, out.sges.begin());
    ++head_;
    return true;
  }

  void clear() {
    const std::lock_guard lock(lock_);
    head_ = tail_;
  }

 private:
  const uint32_t max_sge_;
  Spinlock lock_;
  uint64_t head_ = 0, tail_ = 0;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> counts_;
  std::vector<Sge> sges_;
};

class SoftSharedReceiveQueue final : public SharedReceiveQueue {
 public:
  SoftSharedReceiveQueue(std::shared_ptr<void> owner, uint32_t pd, uint32_t depth, uint32_t max_sge)
      : owner_(std::move(owner)), pd_(pd), queue_(depth, max_sge) {}

  PostResult post(std::span<const RecvRequest> batch) override {
    return closed_.load(std::memory_order_relaxed) ? PostResult{0, PostError::bad_state} : queue_.post(batch);
  }
  void close() override {
    closed_.store(true, std::memory_order_relaxed);
    queue_.clear();
  }
  uint32_t pd() const { return pd_; }
  ReceiveQueue& queue() { return queue_; }

 private:
  std::shared_ptr<void> owner_;
  const uint32_t pd_;
  std::atomic<bool> closed_{false};
  ReceiveQueue queue_;
};

}  // namespace verbena::soft
