// Posted receives: ReceiveQueue (bounded, no allocation per post) for one QP, and SoftSharedReceiveQueue for
// several.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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
  ReceiveQueue(uint32_t depth, uint32_t max_sge)
      : depth_(depth), max_sge_(max_sge), mask_(std::bit_ceil(std::clamp(depth, 1u, kMaxDepth)) - 1) {
    if (depth > kMaxDepth)
      throw Error("limit_exceeded", "create queue", "max_recv is above " + std::to_string(kMaxDepth));
    if (max_sge > kMaxSges)
      throw Error("limit_exceeded", "create queue", "max_recv_sge is above " + std::to_string(kMaxSges));
    ids_.resize(mask_ + 1);
    counts_.resize(mask_ + 1);
    sges_.resize((mask_ + 1) * max_sge);
  }

  PostResult post(std::span<const RecvRequest> batch) {
    const std::lock_guard lock(post_lock_);
    for (size_t i = 0; i < batch.size(); ++i) {
      const uint64_t tail = tail_.load(std::memory_order_relaxed);
      if (batch[i].local.size() > max_sge_) return {i, PostError::too_many_sges};
      if (tail - head_.load(std::memory_order_acquire) >= depth_) return {i, PostError::full};
      const size_t slot = tail & mask_;
      ids_[slot] = batch[i].id;
      counts_[slot] = static_cast<uint32_t>(batch[i].local.size());
      std::copy(batch[i].local.begin(), batch[i].local.end(),
                sges_.begin() + static_cast<ptrdiff_t>(slot * max_sge_));
      tail_.store(tail + 1, std::memory_order_release);
    }
    return {batch.size(), PostError::none};
  }

  // Moves the oldest posted receive into `out`; false when there is none. The caller serialises calls of
  // take() and clear().
  bool take(PostedReceive& out) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    const size_t slot = head & mask_;
    out.id = ids_[slot];
    out.sge_count = counts_[slot];
    std::copy_n(sges_.begin() + static_cast<ptrdiff_t>(slot * max_sge_), out.sge_count, out.sges.begin());
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  // Drops all posted receives.
  void clear() { head_.store(tail_.load(std::memory_order_acquire), std::memory_order_release); }

 private:
  const uint32_t depth_, max_sge_;
  const uint64_t mask_;  // storage is a power of two, so that an index needs no division
  Spinlock post_lock_;
  std::atomic<uint64_t> head_{0}, tail_{0};
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
    const std::lock_guard lock(take_lock_);
    queue_.clear();
  }
  uint32_t pd() const { return pd_; }
  bool take(PostedReceive& out) {
    const std::lock_guard lock(take_lock_);
    return queue_.take(out);
  }

 private:
  std::shared_ptr<void> owner_;
  const uint32_t pd_;
  std::atomic<bool> closed_{false};
  Spinlock take_lock_;  // several QPs take from it
  ReceiveQueue queue_;
};

}  // namespace verbena::soft
