// Splits one completion queue: ids with the top bit are operations somebody tracks, the rest is polled raw.
// Gives waiting (spin, then sleep) to any number of threads and one batch of finished operations to an event
// loop. Depends on the contract and util/ only.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "util/clock.h"
#include "util/fd.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena {

constexpr uint64_t kTrackedBit = uint64_t{1} << 63;
constexpr uint32_t kDefaultSpinUs = 50;

class Waiter;

// How far a batch of requests under one tracked id has come. Written under the pump lock, read by its waiter.
struct BatchProgress {
  std::atomic<uint64_t> reached{0};  // requests known to have ended, from the first on
  std::atomic<uint64_t> failed{
      kNever};  // index of the first that failed; first_error is valid once it is set
  Completion first_error;
};

class CompletionRouter {
 public:
  explicit CompletionRouter(std::shared_ptr<CompletionQueue> cq);

  // An id for one request of this QP (or, for run_batch(), many). Zero: far too many are under way; drain and
  // retry. Every id ends by take(), watch(), release() or abandon(); a batch's by end_batch().
  uint64_t begin(uint32_t qp_num, bool batch = false);
  void release(uint64_t id);  // the post was refused: nothing will complete
  // The request is nobody's any more: its id frees itself on completion, `keep` is held until then
  // (take_dropped).
  void abandon(uint64_t id, std::shared_ptr<void> keep);

  bool finished(uint64_t id) const;
  bool take(uint64_t id, Completion& out);  // false: not finished yet; true: the id is free again

  // Moves what the queue has to where it belongs; leaves at once if another thread is doing so.
  void pump();
  // True when the operation has finished. Spins for `spin_us`, then arms and sleeps until `deadline_ns`
  // (kNever).
  bool wait(uint64_t id, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);

  // Raw completions, oldest first.
  size_t poll_raw(std::span<Completion> out);
  size_t wait_raw(std::span<Completion> out, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);
  void arm(bool solicited_only);
  void acknowledge();

  // The event loop's side: watch() hands an operation over, unless it has finished: then it is taken, and
  // true.
  bool watch(uint64_t id, Completion& out);
  // Makes the queue's fd or wakeup_fileno() readable at the next completion of any kind. Poll once more after
  // it.
  void expect_event();
  // Takes the event, appends the watched operations that finished, and arms again if any is left.
  void drain_watched(std::vector<Completion>& out);
  int wakeup_fileno() const {
    return wakeup_.get();
  }  // rung when another thread took an event that the loop needs

  // The QP is closed: what it still owed ends now, as flushed.
  void forget_qp(uint32_t qp_num);
  void close();  // wakes everybody; nothing is polled any more
  std::vector<std::shared_ptr<void>> take_dropped();
  bool has_dropped() const { return has_dropped_.load(std::memory_order_relaxed); }
  size_t tracked() const { return tracked_.load(std::memory_order_relaxed); }
  CompletionQueue& queue() const { return *cq_; }

  // For run_batch(): the requests under one id are told apart by a sequence number within it.
  static uint64_t nth(uint64_t id, uint64_t index) {
    return id | ((index & kSequenceMask) << kSequenceShift);
  }
  const BatchProgress& batch(uint64_t id) const { return find(id)->batch; }
  // True when `count` requests have ended.
  bool wait_batch(uint64_t id, uint64_t count, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);
  void end_batch(uint64_t id, uint64_t posted, std::shared_ptr<void> keep);  // `keep`: as abandon()

 private:
  // id: 1 bit tracked, 23 bits sequence, 16 bits generation, 24 bits index.
  static constexpr unsigned kGenerationShift = 24, kSequenceShift = 40;
  static constexpr uint64_t kIndexMask = (1u << kGenerationShift) - 1, kGenerationMask = 0xffff,
                            kSequenceMask = (1u << 23) - 1;
  static constexpr size_t kSegmentSlots = 256, kMaxSegments = 1024;
  static constexpr uint32_t kNoSlot = ~uint32_t{0};

  enum class State : uint8_t { free, pending, watched, abandoned, done };

  struct Slot {
    std::atomic<State> state{State::free};
    bool is_batch = false;
    std::atomic<uint16_t> generation{0};
    std::atomic<uint32_t> qp_num{0};
    uint32_t next_free = kNoSlot;
    const EventFd* sleeper = nullptr;  // of the thread that sleeps for it
    Completion completion;
    BatchProgress batch;
    uint64_t goal = kNever;      // where an abandoned batch ends
    std::shared_ptr<void> keep;  // of an abandoned request
  };

  Slot* find(uint64_t id) const;
  uint64_t id_of(const Slot& slot, size_t index) const;
  void free_slot(uint64_t id, Slot& slot);

  // With pump_mutex_ held:
  void drain();
  void dispatch(const Completion& completion);
  void finish(Slot& slot, const Completion& completion);
  void progress_batch(Slot& slot, const Completion& completion);
  void rearm();
  void wake_loop();

  template <typename Ready>
  bool wait_until(Slot* slot, uint64_t deadline_ns, uint32_t spin_us, Ready ready);
  template <typename Ready>
  bool sleep_until(Slot* slot, Waiter& waiter, Ready ready);

  const std::shared_ptr<CompletionQueue> cq_;
  const EventFd wakeup_;

  std::mutex pump_mutex_;  // polling, dispatching, arming, and the members down to table_lock_
  std::array<Completion, 32> polled_;
  std::deque<Completion> raw_;
  std::vector<Completion> watched_done_;
  std::vector<std::shared_ptr<void>> dropped_;
  std::vector<const EventFd*> raw_sleepers_;
  size_t watched_ = 0, sleepers_ = 0;
  bool event_expected_ = false;  // a loop wants to know of any completion
  bool arrived_ = false;         // something came since the loop last looked
  bool wakeup_signalled_ = false;
  bool closed_ = false;

  Spinlock table_lock_;  // taken last
  std::array<std::unique_ptr<Slot[]>, kMaxSegments> segments_;
  size_t segment_count_ = 0;
  uint32_t first_free_ = kNoSlot;

  std::atomic<size_t> tracked_{0};
  std::atomic<bool> has_dropped_{false};
};

}  // namespace verbena
