// A mutex for threads that lock it repeatedly in a loop. With try_lock_if_no_waiters() such a thread leaves
// the mutex to a thread that sleeps for it, which would otherwise wake up and find it locked again.
// Depends on the standard library only.
#pragma once

#include <atomic>
#include <mutex>

namespace verbena {

class YieldingMutex {
 public:
  // Counts as a waiting thread for as long as it exists: try_lock_if_no_waiters() fails meanwhile.
  class Reservation {
   public:
    explicit Reservation(YieldingMutex& mutex) : waiters_(mutex.waiters_) {
      waiters_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Reservation() { waiters_.fetch_sub(1, std::memory_order_relaxed); }
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

   private:
    std::atomic<int>& waiters_;
  };

  void lock() {
    if (mutex_.try_lock()) return;
    const Reservation reservation(*this);
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  bool try_lock_if_no_waiters() { return !has_waiters() && mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  bool has_waiters() const { return waiters_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiters_{0};
};

}  // namespace verbena
