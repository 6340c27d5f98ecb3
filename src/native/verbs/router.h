// CompletionRouter: divides one completion queue. Completions whose id has the top bit set belong to tracked
// operations; all others are raw completions. Any number of threads can wait (spin, then sleep), and an event
// loop receives finished operations in batches. Depends on the provider contract and util/ only.
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
#include "verbs/lazy_signal.h"
#include "verbs/provider.h"

namespace verbena {

constexpr uint64_t kTrackedBit = uint64_t{1} << 63;
constexpr uint32_t kDefaultSpinUs = 50;

class Waiter;

// Progress of a batch of requests under one tracked id. Written under pump_mutex_, read by the batch's
// waiter.
struct BatchProgress {
  std::atomic<uint64_t> reached{0};  // number of requests known to have ended, counted from the first
  // Index of the first failed request; first_error is valid once this is set.
  std::atomic<uint64_t> failed{kNever};
  Completion first_error;
};

class CompletionRouter {
 public:
  explicit CompletionRouter(std::shared_ptr<CompletionQueue> cq);

  // Allocates an id for one request of this QP, or for a whole batch of run_batch(). 0: the table is full, so
  // drain and retry. The caller must end every id with take(), watch(), release() or abandon(), and the id of
  // a batch with end_batch().
  uint64_t begin(uint32_t qp_num, bool batch = false);
  void release(uint64_t id);  // the post was refused: no completion will come
  // Stops tracking the request. Its id is freed when it completes; `keep` is held until then, and returned by
  // take_dropped().
  void abandon(uint64_t id, std::shared_ptr<void> keep);

  bool finished(uint64_t id) const;
  bool take(uint64_t id, Completion& out);  // true: finished, and the id is freed; false: not finished yet

  // Polls the queue and dispatches its completions. Returns at once if another thread is doing so.
  void pump();
  // Spins for `spin_us`, then arms and sleeps until `deadline_ns` (kNever: no deadline). True: the operation
  // has finished, so take() it.
  bool wait(uint64_t id, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);

  // Raw completions, oldest first.
  size_t poll_raw(std::span<Completion> out);
  size_t wait_raw(std::span<Completion> out, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);
  void arm(bool solicited_only);
  void acknowledge();

  // For an event loop. True: the operation had finished; it is in `out`, and its id is freed. False:
  // drain_watched() will return it.
  bool watch(uint64_t id, Completion& out);
  // Makes the queue's descriptor or wakeup_fileno() readable at the next completion of any kind. The caller
  // must poll once more afterwards.
  void expect_event();
  // Consumes the event, appends the watched operations that have finished, and arms again if any are left.
  void drain_watched(std::vector<Completion>& out);
  // Readable when another thread consumed an event that the loop needs.
  int wakeup_fileno() const { return wakeup_.fileno(); }

  // The QP is closed: its tracked operations that have not completed end now with wr_flush_err.
  void forget_qp(uint32_t qp_num);
  void close();  // wakes raw waiters and the event loop; the queue is not polled afterwards
  std::vector<std::shared_ptr<void>> take_dropped();
  bool has_dropped() const { return has_dropped_.load(std::memory_order_relaxed); }
  size_t tracked() const { return tracked_.load(std::memory_order_relaxed); }
  CompletionQueue& queue() const { return *cq_; }

  // For run_batch(): the id of the batch's request number `index`, which is a sequence number inside the id.
  static uint64_t nth(uint64_t id, uint64_t index) {
    return id | ((index & kSequenceMask) << kSequenceShift);
  }
  const BatchProgress& batch(uint64_t id) const { return find(id)->batch; }
  // As wait(). True: `count` requests have ended.
  bool wait_batch(uint64_t id, uint64_t count, uint64_t deadline_ns, uint32_t spin_us = kDefaultSpinUs);
  void end_batch(uint64_t id, uint64_t posted, std::shared_ptr<void> keep);  // `keep`: as in abandon()

 private:
  // Layout of an id, from the top: 1 bit tracked, 23 bits sequence, 16 bits generation, 24 bits index.
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
    const EventFd* sleeper = nullptr;  // of the thread that sleeps until this operation ends
    Completion completion;
    BatchProgress batch;
    uint64_t goal = kNever;      // number of requests after which an abandoned batch has ended
    std::shared_ptr<void> keep;  // held for an abandoned request
  };

  Slot* find(uint64_t id) const;
  uint64_t id_of(const Slot& slot, size_t index) const;
  void free_slot(uint64_t id, Slot& slot);

  // These need pump_mutex_:
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
  const LazySignal wakeup_;

  std::mutex pump_mutex_;  // protects polling, dispatching, arming, and the members down to table_lock_
  std::array<Completion, 32> polled_;
  std::deque<Completion> raw_;
  std::vector<Completion> watched_done_;
  std::vector<std::shared_ptr<void>> dropped_;
  std::vector<const EventFd*> raw_sleepers_;
  size_t watched_ = 0, sleepers_ = 0;
  bool event_expected_ = false;  // set by expect_event(), until drain_watched()
  bool arrived_ = false;         // a completion has arrived since expect_event()
  bool wakeup_signalled_ = false;
  bool closed_ = false;

  Spinlock table_lock_;  // protects the table; locked after pump_mutex_
  std::array<std::unique_ptr<Slot[]>, kMaxSegments> segments_;
  size_t segment_count_ = 0;
  uint32_t first_free_ = kNoSlot;

  std::atomic<size_t> tracked_{0};
  std::atomic<bool> has_dropped_{false};
};

}  // namespace verbena
