// Frees Python values that the keyspace has released. Freeing a million elements takes 20 ms and more, so
// large values are freed in slices of about a millisecond. Needs the GIL, except for waiting().
// Depends on Python only, not on the engine.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <deque>

#include "util/clock.h"

namespace verbena::bind {

namespace nb = nanobind;

class LazyFree {
 public:
  // Takes over a reference. If other references exist, it is only dropped. If it is the last one, a large
  // value is kept for work(); a small one is freed immediately, or kept as well when the deadline has passed.
  void take(PyObject* value, uint64_t deadline_ns) {
    nb::object last = nb::steal(value);
    if (Py_REFCNT(value) > 1) return;
    const Py_ssize_t elements = PyObject_Size(value);
    const auto bytes = nb::cast<Py_ssize_t>(last.attr("memory_bytes"));
    const bool is_small = elements < kElements && bytes < kBytes;
    if (is_small && (elements < kFew || now_ns() < deadline_ns)) return;
    const Py_ssize_t each = std::max<Py_ssize_t>(1, bytes / std::max<Py_ssize_t>(1, elements));
    lazy_free_.push_back({std::move(last), std::clamp<Py_ssize_t>(kBytes / each, 1, kElements)});
    waiting_ += static_cast<uint64_t>(elements);
  }

  // Frees elements of the kept values until the deadline.
  void work(uint64_t deadline_ns) {
    while (!lazy_free_.empty() && now_ns() < deadline_ns) {
      const Pending pending = std::move(lazy_free_.front());
      lazy_free_.pop_front();
      const Py_ssize_t before = PyObject_Size(pending.value.ptr());
      waiting_ -= static_cast<uint64_t>(before);
      pending.value.attr("free_some")(pending.step);
      const Py_ssize_t left = PyObject_Size(pending.value.ptr());
      freed_elements_ += static_cast<uint64_t>(before - left);
      if (left == 0) {
        ++freed_;
        continue;
      }
      waiting_ += static_cast<uint64_t>(left);
      lazy_free_.push_front(pending);
    }
  }

  uint64_t waiting() const { return waiting_.load(std::memory_order_relaxed); }  // elements
  size_t values() const { return lazy_free_.size(); }
  uint64_t freed() const { return freed_; }  // values that work() has freed
  uint64_t freed_elements() const { return freed_elements_; }

 private:
  // From this size on, a value is freed in slices; also the size of a slice between two readings of the
  // clock.
  static constexpr Py_ssize_t kElements = 1024, kBytes = 256 << 10;
  static constexpr Py_ssize_t kFew = 16;
  struct Pending {
    nb::object value;
    Py_ssize_t step;
  };
  std::deque<Pending> lazy_free_;
  std::atomic<uint64_t> waiting_{0};
  uint64_t freed_ = 0, freed_elements_ = 0;
};

}  // namespace verbena::bind
