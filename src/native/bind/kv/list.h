// A list of the store: bytes objects, left to right. Any place is reached at once, so that it can be copied
// in pieces while it changes; its walks are told of each change. With the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <vector>

#include "kv/values/list_copy_cursor.h"

namespace verbena::bind {

namespace nb = nanobind;

class ElementList {
 public:
  ElementList() = default;
  ElementList(ElementList&& other) noexcept = default;
  ElementList& operator=(ElementList&&) = delete;
  ~ElementList() {
    for (PyObject* const element : elements_) Py_DECREF(element);
  }

  size_t size() const { return elements_.size(); }
  PyObject* at(size_t place) const { return elements_[place]; }
  // About how much memory it takes, counted as elements come and go.
  size_t held() const { return held_; }
  // Of a Python index; IndexError if there is no such place.
  size_t place_of(Py_ssize_t index) const;

  void insert(size_t place, const std::vector<nb::bytes>& ones);
  void erase(size_t place, size_t count);
  nb::object take(size_t place);
  void replace(size_t place, const nb::bytes& element);
  // Takes away what equals it: so many from the left, or (negative) from the right, or (0) all.
  size_t remove(const nb::bytes& element, Py_ssize_t limit);

  void begin_walk(kv::ListCopyCursor& walk) { walks_.push_back(&walk); }
  void end_walk(kv::ListCopyCursor& walk) { std::erase(walks_, &walk); }

 private:
  // A bytes object's head and what is lost by rounding up, and its place here; a list of few.
  static constexpr size_t kElement = 48, kEmpty = 640;

  std::deque<PyObject*> elements_;
  size_t held_ = kEmpty;
  std::vector<kv::ListCopyCursor*> walks_;
};

}  // namespace verbena::bind
