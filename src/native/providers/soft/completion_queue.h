// SoftCompletionQueue: a completion queue in memory, with a bounded ring, an event, and the queue pairs
// that poll() drives. Lock order everywhere: members_lock_, then a queue pair's own lock, then ring_lock_.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "util/spinlock.h"
#include "verbs/lazy_signal.h"
#include "verbs/provider.h"

namespace verbena::soft {

class SoftContext;

class SoftCompletionQueue;

// The number of completions of one send queue that were not polled yet; null if the caller needs no such
// count. An unpolled completion keeps its slot in the send queue, as in hardware, so that a program that
// posts until the send queue is full cannot overrun the completion queue.
using UnpolledCount = std::shared_ptr<std::atomic<uint32_t>>;

// The caller's buffer in poll(). A queue pair that poll() drives writes completions there directly, without
// the ring and its locks. Order is kept because this is done only while the ring is empty.
struct PollerSink {
  const SoftCompletionQueue* queue;
  std::span<Completion> room;
  size_t taken = 0;
};

// Makes progress when the completion queue is polled: a software queue pair.
class Progressor {
 public:
  virtual void progress(PollerSink& sink) = 0;

 protected:
  ~Progressor() = default;
};

class SoftCompletionQueue : public CompletionQueue {
 public:
  explicit SoftCompletionQueue(uint32_t depth) : depth_(depth), ring_(std::min(depth, kInitialEntries)) {
    event_.fileno();  // throws here rather than when a thread is about to sleep
  }

  size_t poll(std::span<Completion> out) override;
  void arm(bool solicited_only) override;
  int fileno() const override { return event_.fileno(); }
  void acknowledge() override { event_.clear(); }
  uint32_t capacity() const override { return depth_; }
  bool overrun() const override { return overrun_.load(std::memory_order_relaxed); }
  void close() override {}

  bool is_armed() const { return armed_.load(std::memory_order_relaxed) != Armed::no; }

  const SoftContext* owner() const { return owner_; }
  void set_owner(const SoftContext& context) { owner_ = &context; }

  // False when the queue is full: the completion is lost and the caller's queue pair must go to ERR. `sink`
  // belongs to the poll() that drives the caller, if any; `unpolled` counts the caller's completions in the
  // ring; `fill` writes the completion in place.
  template <typename Fill>
  bool push(bool solicited, PollerSink* sink, const UnpolledCount& unpolled, Fill fill) {
    if (sink && sink->queue == this && sink->taken < sink->room.size() &&
        count_.load(std::memory_order_acquire) == 0 && armed_.load(std::memory_order_relaxed) == Armed::no) {
      fill(sink->room[sink->taken++]);
      return true;
    }
    Completion completion;
    fill(completion);
    return enqueue(completion, solicited, unpolled);
  }
  void attach(Progressor& member);
  void detach(Progressor& member);  // waits until no poll() drives it

 protected:
  const LazySignal& event() const { return event_; }
  // Runs `visit` on each member, unless another thread does so at the moment.
  template <typename Visit>
  void visit_members(Visit visit) {
    if (!members_lock_.try_lock()) return;
    for (Progressor* member : members_) visit(*member);
    members_lock_.unlock();
  }

 private:
  enum class Armed : uint8_t { no, any, solicited };
  struct Entry {
    Completion completion;
    UnpolledCount unpolled;
  };

  size_t take(std::span<Completion> out);
  void grow();
  bool enqueue(const Completion& completion, bool solicited, const UnpolledCount& unpolled);

  const SoftContext* owner_ = nullptr;
  static constexpr uint32_t kInitialEntries = 64;
  const uint32_t depth_;
  std::vector<Entry> ring_;  // grows up to the depth: most queues are polled before they hold many
  Spinlock ring_lock_;
  size_t head_ = 0;
  std::atomic<size_t> count_{0};         // changed under ring_lock_; read without it to skip an empty ring
  std::atomic<Armed> armed_{Armed::no};  // changed under ring_lock_
  std::atomic<bool> overrun_{false};
  LazySignal event_;
  Spinlock members_lock_;
  std::vector<Progressor*> members_;
};

}  // namespace verbena::soft
