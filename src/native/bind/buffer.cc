#include "bind/buffer.h"

namespace verbena::bind {

namespace nb = nanobind;

BufferView view_of(const nb::handle& buffer, const char* operation, bool writable, const char* argument) {
  const int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
  try {
    return BufferView(buffer, flags);
  } catch (const nb::python_error&) {
    using namespace nb::literals;
    const nb::object view =
        nb::module_::import_("verbena.transport.memory.buffers")
            .attr("contiguous_bytes")(buffer, operation, "argument"_a = argument, "writable"_a = writable);
    return BufferView(view, flags);
  }
}

}  // namespace verbena::bind
