// Remembers posted requests, so that our own count bounds the queues and every completion finds its request.
// A device's wr_id contains the queue and the slot; the program's id is stored here. No allocation after
// construction; no verbs.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "util/spinlock.h"
#include "verbs/types.h"

namespace verbena::ibv {

struct Slot {
  uint64_t id = 0;
  uint32_t length = 0;
  WcOpcode opcode = WcOpcode::recv;
};

// The requests that complete on one completion queue.
class PostedRequests {
 public:
  // Adds what the device does not report. False: a completion from before a reset, to be dropped.
  virtual bool finish(uint32_t index, Completion& completion) = 0;

 protected:
  ~PostedRequests() = default;
};

constexpr uint64_t make_wr_id(uint32_t queue, uint32_t index) { return uint64_t{queue} << 32 | index; }
constexpr uint32_t queue_of(uint64_t wr_id) { return static_cast<uint32_t>(wr_id >> 32); }
constexpr uint32_t index_of(uint64_t wr_id) { return static_cast<uint32_t>(wr_id); }

// A send or receive queue, which completes in order: a completion frees its slot and all earlier ones. One
// thread posts and one polls at a time, each under its own lock.
class SlotRing final : public PostedRequests {
 public:
  explicit SlotRing(uint32_t depth) : slots_(depth) {}

  uint32_t room() const {
    return static_cast<uint32_t>(slots_.size()) -
           (head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_acquire));
  }
  // Stores a request `offset` slots behind the last posted one, within room(), and returns its index.
  uint32_t stage(uint32_t offset, const Slot& slot) {
    const uint32_t index = head_.load(std::memory_order_relaxed) + offset;
    slots_[index % slots_.size()] = slot;
    return index;
  }
  // Called before the device may complete the requests; take_back() those that it refused.
  void commit(uint32_t count) { head_.fetch_add(count, std::memory_order_release); }
  void take_back(uint32_t count) { head_.fetch_sub(count, std::memory_order_release); }

  bool finish(uint32_t index, Completion& completion) override {
    const uint32_t head = head_.load(std::memory_order_acquire);
    if (head - index - 1 >= slots_.size()) return false;  // the slot holds another request now
    const Slot& slot = slots_[index % slots_.size()];
    completion.id = slot.id;
    if (slot.opcode != WcOpcode::recv) {
      completion.opcode = slot.opcode;
      completion.byte_count = slot.length;
    }
    if (completion.status != Status::success) failed_.store(true, std::memory_order_relaxed);
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (index - tail < head - tail) tail_.store(index + 1, std::memory_order_release);
    return true;
  }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void reset() {
    tail_.store(head_.load(std::memory_order_relaxed), std::memory_order_release);
    failed_.store(false, std::memory_order_relaxed);
  }

 private:
  std::vector<Slot> slots_;
  std::atomic<uint32_t> head_{0}, tail_{0};
  std::atomic<bool> failed_{false};
};

// A shared receive queue: several queue pairs and completion queues take from it, in any order.
class SlotPool final : public PostedRequests {
 public:
  explicit SlotPool(uint32_t depth) : ids_(depth) {
    free_.reserve(depth);
    while (depth > 0) free_.push_back(--depth);
  }

  // False: all slots are in use.
  bool take(uint64_t id, uint32_t& index) {
    const std::lock_guard lock(lock_);
    if (free_.empty()) return false;
    index = free_.back();
    free_.pop_back();
    ids_[index] = id;
    return true;
  }
  void give_back(uint32_t index) {
    const std::lock_guard lock(lock_);
    free_.push_back(index);
  }
  bool finish(uint32_t index, Completion& completion) override {
    const std::lock_guard lock(lock_);
    if (index >= ids_.size() || free_.size() == ids_.size()) return false;
    completion.id = ids_[index];
    free_.push_back(index);
    return true;
  }

 private:
  Spinlock lock_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> free_;
};

}  // namespace verbena::ibv
