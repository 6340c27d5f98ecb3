#include "bind/kv/client/resp_objects.h"

#include <nanobind/stl/string.h>

namespace verbena::bind {
namespace {

PyObject* command_error = nullptr;

}  // namespace

void use_command_error(nb::handle type) { command_error = type.inc_ref().ptr(); }

void raise_if_error(const nb::object& reply) {
  if (PyObject_IsInstance(reply.ptr(), command_error) != 1) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(reply.ptr())), reply.ptr());
  throw nb::python_error();
}

void ObjectBuilder::error(std::string_view text) {
  add(nb::borrow(command_error)(
      nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"))));
}

void put_object(std::string& out, nb::handle argument) {
  PyObject* object = argument.ptr();
  if (PyBytes_Check(object)) {
    return kv::put_argument(out, {PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object))});
  }
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw nb::python_error();
    return kv::put_argument(out, {text, static_cast<size_t>(size)});
  }
  if ((PyLong_Check(object) && !PyBool_Check(object)) || PyFloat_Check(object)) {
    return kv::put_argument(out, nb::cast<std::string>(nb::repr(argument)));
  }
  const BufferView view = view_of(argument, "command", false, "value");
  kv::put_argument(out, {reinterpret_cast<const char*>(view.data()), view.size()});
}

void put_command(std::string& out, nb::handle arguments) {
  const nb::object kept = nb::steal(PySequence_Fast(arguments.ptr(), "a command is a sequence of arguments"));
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(kept.ptr());
  if (count == 0) throw nb::value_error("a command has at least one argument");
  kv::put_count(out, '*', static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) put_object(out, PySequence_Fast_GET_ITEM(kept.ptr(), i));
}

}  // namespace verbena::bind
