#include "bind/kv/replies.h"

#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace verbena::bind {
namespace {

// The classes of verbena.kv.commands.replies, which use_replies() sets. Never freed.
struct ReplyClasses {
  PyObject *error = nullptr, *pairs = nullptr, *null_array = nullptr, *verbatim = nullptr, *push = nullptr,
           *none = nullptr;
} classes;

std::string_view bytes_of(nb::handle value) {
  return {PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
}

void write_sequence(kv::ReplyWriter& writer, nb::handle value) {
  PyObject** items = PySequence_Fast_ITEMS(value.ptr());
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(value.ptr()));
  for (size_t i = 0; i < count; ++i) write_reply(writer, items[i]);
}

size_t length_of(nb::handle sequence) {
  return static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
}

bool is_a(nb::handle value, PyObject* type) { return type && PyObject_IsInstance(value.ptr(), type) == 1; }

nb::object as_list(nb::handle value) {
  return nb::steal(PySequence_Fast(value.ptr(), "a reply's items must be a sequence"));
}

void write_int(kv::ReplyWriter& writer, nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (!overflow) return writer.integer(number);
  writer.big_number(nb::cast<std::string>(nb::str(value), false));
}

void write_object(kv::ReplyWriter& writer, nb::handle value) {
  if (is_a(value, classes.error)) {
    return writer.error(nb::cast<std::string>(value.attr("text")));
  }
  if (is_a(value, classes.pairs)) {
    const nb::object items = as_list(value.attr("items"));
    const size_t count = length_of(items);
    writer.array(writer.version() == 2 ? count * 2 : count);
    for (size_t i = 0; i < count; ++i) {
      const nb::object pair = as_list(PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)));
      if (writer.version() != 2) writer.array(length_of(pair));
      write_sequence(writer, pair);
    }
    return;
  }
  if (is_a(value, classes.null_array)) return writer.null_array();
  if (is_a(value, classes.verbatim)) {
    const nb::object text = value.attr("text");
    return writer.verbatim(bytes_of(text));
  }
  if (is_a(value, classes.push)) {
    const nb::object items = as_list(value.attr("items"));
    writer.push(length_of(items));
    return write_sequence(writer, items);
  }
  if (is_a(value, classes.none)) return;
  throw nb::type_error(("a command answered with " + nb::cast<std::string>(nb::repr(value))).c_str());
}

}  // namespace

void write_reply(kv::ReplyWriter& writer, nb::handle value) {
  PyObject* object = value.ptr();
  if (PyBytes_Check(object)) return writer.bulk(bytes_of(value));
  if (object == Py_None) return writer.null();
  if (PyBool_Check(object)) return writer.boolean(object == Py_True);
  if (PyLong_Check(object)) return write_int(writer, value);
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw nb::python_error();
    return writer.simple({text, static_cast<size_t>(size)});
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    writer.array(length_of(value));
    return write_sequence(writer, value);
  }
  if (PyFloat_Check(object)) return writer.number(PyFloat_AS_DOUBLE(object));
  if (PyDict_Check(object)) {
    writer.map(static_cast<size_t>(PyDict_Size(object)));
    Py_ssize_t at = 0;
    PyObject *key, *item;
    while (PyDict_Next(object, &at, &key, &item)) {
      write_reply(writer, key);
      write_reply(writer, item);
    }
    return;
  }
  if (PyAnySet_Check(object)) {
    writer.set(static_cast<size_t>(PySet_Size(object)));
    for (const nb::handle item : nb::borrow<nb::iterable>(value)) write_reply(writer, item);
    return;
  }
  if (PyByteArray_Check(object)) {
    return writer.bulk({PyByteArray_AS_STRING(object), static_cast<size_t>(PyByteArray_GET_SIZE(object))});
  }
  write_object(writer, value);
}

void bind_kv_replies(nb::module_& m) {
  m.def(
      "use_replies",
      [](nb::handle error, nb::handle pairs, nb::handle null_array, nb::handle verbatim, nb::handle push,
         nb::handle none) {
        for (const nb::handle type : {error, pairs, null_array, verbatim, push, none}) type.inc_ref();
        classes = {error.ptr(), pairs.ptr(), null_array.ptr(), verbatim.ptr(), push.ptr(), none.ptr()};
      },
      nb::arg("error"), nb::arg("pairs"), nb::arg("null_array"), nb::arg("verbatim"), nb::arg("push"),
      nb::arg("no_reply"), "Sets the classes of replies for which Python has no type.");
  m.def(
      "encode",
      [](nb::handle reply, int version) {
        std::string out;
        kv::ReplyWriter writer(out, version);
        write_reply(writer, reply);
        return nb::bytes(out.data(), out.size());
      },
      nb::arg("reply").none(), nb::arg("version") = 2, "A reply in RESP.");
}

}  // namespace verbena::bind
