// BufferView: owns a Py_buffer, so that native code can use the memory. Create, release and destroy it with
// the GIL held. Depends on nanobind only.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <utility>

namespace verbena::bind {

class BufferView {
 public:
  BufferView() = default;
  BufferView(const nanobind::handle& object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  BufferView(BufferView&& other) noexcept : view_(std::exchange(other.view_, Py_buffer{})) {}
  BufferView& operator=(BufferView&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~BufferView() { release(); }

  void release() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }
  bool readonly() const { return view_.readonly != 0; }
  PyObject* owner() const { return view_.obj; }

 private:
  Py_buffer view_{};
};

// A view of contiguous memory of any item type. What PyBUF_SIMPLE does not accept goes through Python, which
// accepts more exporters and raises an error that names the argument for the others.
BufferView view_of(const nanobind::handle& buffer, const char* operation, bool writable,
                   const char* argument = "buffer");

}  // namespace verbena::bind
