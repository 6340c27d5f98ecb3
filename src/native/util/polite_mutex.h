// A mutex for threads that take it again and again in a loop: with try_lock_politely() they leave it to
// whoever sleeps for it, who would otherwise wake up only to find it taken again.
#pragma once

#include <atomic>
#include <mutex>

namespace verbena {

class PoliteMutex {
 public:
  // While there is one, those who are polite keep away.
  class Wish {
   public:
    explicit Wish(PoliteMutex& mutex) : wanted_(mutex.wanted_) {
      wanted_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Wish() { wanted_.fetch_sub(1, std::memory_order_relaxed); }
    Wish(const Wish&) = delete;
    Wish& operator=(const Wish&) = delete;

   private:
    std::atomic<int>& wanted_;
  };

  void lock() {
    if (mutex_.try_lock()) return;
    const Wish wish(*this);
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  bool try_lock_politely() { return !is_wanted() && mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  bool is_wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> wanted_{0};
};

}  // namespace verbena
