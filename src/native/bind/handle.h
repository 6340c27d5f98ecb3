// Owned and Handle: how Python objects own native objects. They are shared, closed once, and unusable in a
// forked child. A wire's threads and sockets do not survive fork(), so a child may neither use nor destroy
// objects that it inherited. May depend on util/ only.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "util/error.h"
#include "util/forks.h"

namespace verbena::bind {

[[noreturn]] void refuse_inherited(const char* operation, const char* kind = nullptr);

// Every access is checked, before any lock of the object is taken: a thread of the parent may have held it
// at the fork. Only core() is not, for callers that have asked is_inherited().
template <typename T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(std::shared_ptr<T> object) : object_(std::move(object)) {}
  Owned(const Owned&) = default;
  Owned(Owned&&) noexcept = default;
  Owned& operator=(Owned&& other) noexcept {
    reset();
    object_ = std::move(other.object_);
    forks_ = other.forks_;
    return *this;
  }
  ~Owned() { reset(); }

  void reset() {
    if (is_inherited() && object_)
      new std::shared_ptr<T>(std::move(object_));  // leaked on purpose: see the file header
    object_.reset();
  }

  bool is_inherited() const { return forks() != forks_; }
  explicit operator bool() const { return object_ != nullptr; }
  const std::shared_ptr<T>& share(const char* operation = "use an inherited object") const {
    if (is_inherited()) [[unlikely]]
      refuse_inherited(operation);
    return object_;
  }
  T& use(const char* operation) const { return *share(operation); }
  T& operator*() const { return *share(); }
  T* operator->() const { return share().get(); }
  const std::shared_ptr<T>& core() const { return object_; }

 private:
  std::shared_ptr<T> object_;
  uint32_t forks_ = forks();
};

// An object of the provider contract and its state in Python: usable, closed, or inherited through a fork.
// use() and share() throw `closed` or `forked` unless it is usable.
template <typename T>
class Handle {
 public:
  Handle(std::shared_ptr<T> object, const char* kind) : object_(std::move(object)), kind_(kind) {}

  T& use(const char* operation) const {
    if (closed_.load(std::memory_order_relaxed) || object_.is_inherited()) [[unlikely]]
      refuse(operation);
    return *object_.core();
  }
  const std::shared_ptr<T>& share(const char* operation) const {
    use(operation);
    return object_.core();
  }
  // Also after close(), but not in a forked child.
  const std::shared_ptr<T>& core() const {
    if (object_.is_inherited()) [[unlikely]]
      refuse_inherited("use an inherited object", kind_);
    return object_.core();
  }
  bool is_closed() const { return closed_.load(std::memory_order_relaxed); }
  bool is_inherited() const { return object_.is_inherited(); }
  // Marks the object as closed. True for exactly one caller, which must close it; never in a forked child.
  bool start_close() { return !closed_.exchange(true) && !object_.is_inherited(); }

 private:
  [[noreturn]] void refuse(const char* operation) const {
    if (object_.is_inherited()) refuse_inherited(operation, kind_);
    throw Error("closed", operation, std::string("the ") + kind_ + " is closed");
  }

  const Owned<T> object_;
  const char* const kind_;
  std::atomic<bool> closed_{false};
};

}  // namespace verbena::bind
