// The list type of the store: a deque of bytes objects. Access by position takes constant time, so that the
// list can be copied in pieces while it changes; it reports each change to the cursors of its copies. Needs
// the GIL.
// Depends on kv/values/list_copy_cursor.h; not on the engine.
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
  // The approximate memory use, updated with each change.
  size_t held() const { return held_; }
  // Converts a Python index, which may be negative. Raises IndexError if it is out of range.
  size_t place_of(Py_ssize_t index) const;

  void insert(size_t place, const std::vector<nb::bytes>& ones);
  void erase(size_t place, size_t count);
  nb::object take(size_t place);
  void replace(size_t place, const nb::bytes& element);
  // Removes elements that equal `element`: at most `limit` from the left, or from the right if `limit` is
  // negative, or all if it is 0. Returns how many were removed.
  size_t remove(const nb::bytes& element, Py_ssize_t limit);

  void begin_walk(kv::ListCopyCursor& walk) { walks_.push_back(&walk); }
  void end_walk(kv::ListCopyCursor& walk) { std::erase(walks_, &walk); }

 private:
  // kElement: the header of a bytes object, its padding, and its pointer here. kEmpty: a list of few
  // elements.
  static constexpr size_t kElement = 48, kEmpty = 640;

  std::deque<PyObject*> elements_;
  size_t held_ = kEmpty;
  std::vector<kv::ListCopyCursor*> walks_;
};

}  // namespace verbena::bind
