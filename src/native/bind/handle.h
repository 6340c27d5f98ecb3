// Owned and Handle: how Python objects own native objects. They are shared, closed once, and unusable in a
// forked child. A wire's threads and sockets do not survive fork(), so a child may neither use nor destroy
// objects that it inherited. May depend on util/ only.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "util/error.h"

namespace verbena::bind {

void watch_forks();
// Forks of this process and its ancestors since the module was loaded.
extern std::atomic<uint32_t> fork_count;

template <typename T>
class Owned {
 public:
  explicit Owned(std::shared_ptr<T> object) : object_(std::move(object)) {}
  Owned(const Owned&) = default;
  Owned(Owned&&) noexcept = default;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  void reset() {
    if (is_inherited() && object_)
      new std::shared_ptr<T>(std::move(object_));  // leaked on purpose: see the file header
    object_.reset();
  }

  bool is_inherited() const { return fork_count.load(std::memory_order_relaxed) != forks_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_.get(); }
  const std::shared_ptr<T>& share() const { return object_; }

 private:
  std::shared_ptr<T> object_;
  uint32_t forks_ = fork_count.load(std::memory_order_relaxed);
};

// An object of the provider contract and its state in Python: usable, closed, or inherited through a fork.
// use() and share() throw `closed` unless it is usable.
template <typename T>
class Handle {
 public:
  Handle(std::shared_ptr<T> object, const char* kind) : object_(std::move(object)), kind_(kind) {}

  T& use(const char* operation) const {
    if (closed_.load(std::memory_order_relaxed) || object_.is_inherited()) [[unlikely]]
      refuse(operation);
    return *object_;
  }
  const std::shared_ptr<T>& share(const char* operation) const {
    use(operation);
    return object_.share();
  }
  const std::shared_ptr<T>& core() const { return object_.share(); }
  bool is_closed() const { return closed_.load(std::memory_order_relaxed); }
  // Marks the object as closed. True for exactly one caller, which must close it; never in a forked child.
  bool start_close() { return !closed_.exchange(true) && !object_.is_inherited(); }

 private:
  [[noreturn]] void refuse(const char* operation) const {
    throw Error("closed", operation,
                std::string("the ") + kind_ +
                    (is_closed() ? " is closed"
                                 : " was opened before this process forked, and stays with its parent"));
  }

  const Owned<T> object_;
  const char* const kind_;
  std::atomic<bool> closed_{false};
};

}  // namespace verbena::bind
