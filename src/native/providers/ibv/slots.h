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
// thread posts and one polls at a time, each under its own lock. Binds of windows have slots of their own, so
// that they take none from the program.
class SlotRing final : public PostedRequests {
 public:
  explicit SlotRing(uint32_t depth, uint32_t binds = 0) : slots_(depth + binds), bind_slots_(binds) {
    binds_.reserve(binds);
  }

  // Slots for the program. The poster's: it also forgets binds that have completed.
  uint32_t room() {
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    forget_binds_before(tail);
    const auto binds = static_cast<uint32_t>(binds_.size());
    const uint32_t used = head_.load(std::memory_order_relaxed) - tail - binds;
    return static_cast<uint32_t>(slots_.size()) - bind_slots_ - used;
  }
  bool has_bind_room() {
    forget_binds_before(tail_.load(std::memory_order_acquire));
    return binds_.size() < bind_slots_;
  }
  // Stores a bind, within has_bind_room(), and returns its index.
  uint32_t stage_bind() {
    const uint32_t index = stage(0, {.opcode = WcOpcode::bind_mw});
    binds_.push_back(index);
    return index;
  }
  void take_back_bind() {
    take_back(1);
    binds_.pop_back();
  }
  // Whether the request with this index has completed.
  bool has_finished(uint32_t index) const { return is_before(index, tail_.load(std::memory_order_acquire)); }
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
    // The program did not post it. A flushed one is no news either: what broke the queue pair reports itself.
    return slot.opcode != WcOpcode::bind_mw ||
           (completion.status != Status::success && completion.status != Status::wr_flush_err);
  }

  // The requests in flight, as flushed ones; afterwards there are none.
  std::vector<Completion> flush(uint32_t qp_num) {
    std::vector<Completion> flushed;
    const uint32_t head = head_.load(std::memory_order_acquire);
    for (uint32_t index = tail_.load(std::memory_order_acquire); index != head; ++index) {
      Completion completion{.status = Status::wr_flush_err, .qp_num = qp_num};
      completion.opcode = WcOpcode::recv;
      if (finish(index, completion)) flushed.push_back(completion);
    }
    return flushed;
  }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void reset() {
    tail_.store(head_.load(std::memory_order_relaxed), std::memory_order_release);
    failed_.store(false, std::memory_order_relaxed);
  }

 private:
  static bool is_before(uint32_t index, uint32_t tail) { return static_cast<int32_t>(tail - index) > 0; }
  void forget_binds_before(uint32_t tail) {
    if (!binds_.empty()) std::erase_if(binds_, [tail](uint32_t index) { return is_before(index, tail); });
  }

  std::vector<Slot> slots_;
  const uint32_t bind_slots_;
  std::vector<uint32_t> binds_;  // in flight, by index; the poster's
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
