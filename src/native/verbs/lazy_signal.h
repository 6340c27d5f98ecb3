// LazySignal: reports events through a descriptor, and to callbacks. The descriptor is created when it is
// first asked for, because a node with thousands of connections needs none.
// Depends on util/ only.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "util/fd.h"

namespace verbena {

class LazySignal {
 public:
  void signal() const {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (!is_signalled_.exchange(true) && event_) event_->signal();
      callbacks = callbacks_;
    }
    for (const auto& callback : callbacks) callback();
  }
  // Without a signal it costs no system call: a node clears hundreds of signals before each sleep.
  void clear() const {
    if (!is_signalled_) return;
    const std::lock_guard lock(mutex_);
    is_signalled_ = false;
    if (event_) event_->clear();
  }
  int fileno() const {
    const std::lock_guard lock(mutex_);
    if (!event_) {
      event_.emplace();
      if (is_signalled_) event_->signal();
    }
    return event_->get();
  }
  void on_signal(std::function<void()> callback) const {
    const std::lock_guard lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::atomic<bool> is_signalled_{false};  // changed under mutex_
  mutable std::optional<EventFd> event_;
  mutable std::vector<std::function<void()>> callbacks_;
};

}  // namespace verbena
