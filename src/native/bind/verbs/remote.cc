#include "bind/verbs/remote.h"

#include <nanobind/stl/string.h>

#include <cstdio>
#include <string>

#include "util/error.h"

namespace verbena::bind {
namespace {

// The fields in the order of the constructor's arguments.
nb::tuple parts(const RemoteMemory& self) { return nb::make_tuple(self.addr, self.rkey, self.length); }

nb::tuple parts(const RemoteRegion& self) {
  return nb::make_tuple(self.addr, self.length, self.key, self.epoch, self.offset);
}

// Calls `visit` for each field in the order of the packed form, which is little-endian.
template <typename Visit>
void each_field(RemoteMemory& self, Visit visit) {
  visit(self.addr), visit(self.length), visit(self.rkey);
}

template <typename Visit>
void each_field(RemoteRegion& self, Visit visit) {
  visit(self.addr), visit(self.length), visit(self.key), visit(self.epoch), visit(self.offset);
}

template <typename T>
constexpr size_t kPacked = 0;
template <>
constexpr size_t kPacked<RemoteMemory> = 20;
template <>
constexpr size_t kPacked<RemoteRegion> = sizeof(RemoteRegion);

template <typename T>
nb::bytes pack(T self) {
  char text[kPacked<T>];
  char* at = text;
  each_field(self, [&at](auto value) {
    for (size_t i = 0; i < sizeof value; ++i) *at++ = static_cast<char>(value >> (8 * i) & 0xff);
  });
  return nb::bytes(text, sizeof text);
}

template <typename T>
T unpack(const nb::bytes& data) {
  if (data.size() != kPacked<T>) {
    const auto name = nb::cast<std::string>(nb::type<T>().attr("__name__"));
    throw nb::value_error(
        ("a " + name + " is " + std::to_string(kPacked<T>) + " bytes, not " + std::to_string(data.size()))
            .c_str());
  }
  const char* at = data.c_str();
  T value;
  each_field(value, [&at](auto& field) {
    for (size_t i = 0; i < sizeof field; ++i) {
      field |= static_cast<std::remove_reference_t<decltype(field)>>(static_cast<uint8_t>(*at++)) << (8 * i);
    }
  });
  return value;
}

RemoteMemory part_of(const RemoteMemory& self, const nb::slice& slice) {
  const Range range = range_of(slice, self.length, "slice");
  return {self.addr + range.offset, self.rkey, range.length};
}

RemoteRegion part_of(const RemoteRegion& self, const nb::slice& slice) {
  const Range range = range_of(slice, self.length, "slice");
  return {self.addr + range.offset, range.length, self.key, self.epoch, self.offset + range.offset};
}

// Binds what both types have: equality, pickling, the packed form and slicing.
template <typename T>
void bind_value(nb::class_<T>& type, const char* packed_doc) {
  type.def_ro("addr", &T::addr)
      .def_ro("length", &T::length)
      .def("__len__", [](const T& self) { return self.length; })
      .def(
          "__getitem__", [](const T& self, const nb::slice& part) { return part_of(self, part); },
          nb::arg("part"), "A part of it, [start:stop], which must lie inside.")
      .def("to_bytes", pack<T>, packed_doc)
      .def_static("from_bytes", unpack<T>, nb::arg("data"),
                  "The value that to_bytes() described; else ValueError.")
      .def(
          "__eq__",
          [](const T& self, const nb::object& other) {
            T value;
            return nb::try_cast<T>(other, value) && self == value;
          },
          nb::arg("other").none())
      .def("__hash__", [](const T& self) { return nb::hash(parts(self)); })
      .def(
          "__reduce__", [](const T& self) { return nb::make_tuple(nb::type<T>(), parts(self)); },
          nb::sig("def __reduce__(self) -> tuple[type, tuple[int, ...]]"));
}

}  // namespace

Range range_of(const nb::slice& slice, uint64_t length, const char* operation) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  if (step != 1) throw Error("invalid_argument", operation, "a slice of memory has no step");
  const auto size = static_cast<Py_ssize_t>(length);
  if (start < 0) start += size;
  if (reinterpret_cast<PySliceObject*>(slice.ptr())->stop == Py_None) stop = size;
  if (stop < 0) stop += size;
  if (start < 0 || stop < start || stop > size) {
    throw Error("out_of_range", operation,
                "[" + std::to_string(start) + ":" + std::to_string(stop) + "] of " + std::to_string(length) +
                    " bytes");
  }
  return {static_cast<uint64_t>(start), static_cast<uint64_t>(stop - start)};
}

void bind_remote_memory(nb::module_& m) {
  nb::class_<RemoteMemory> type(m, "RemoteMemory", nb::is_final(),
                                "A peer's memory: address, key and length. A value.");
  type.def(
          "__init__",
          [](RemoteMemory* self, uint64_t addr, uint32_t rkey, uint64_t length) {
            new (self) RemoteMemory{addr, rkey, length};
          },
          nb::arg("addr"), nb::arg("rkey"), nb::arg("length"))
      .def_ro("rkey", &RemoteMemory::rkey)
      .def("__repr__", [](const RemoteMemory& self) {
        char text[96];
        std::snprintf(text, sizeof text, "RemoteMemory(addr=0x%llx, rkey=0x%x, length=%llu)",
                      static_cast<unsigned long long>(self.addr), self.rkey,
                      static_cast<unsigned long long>(self.length));
        return std::string(text);
      });
  bind_value(type, "20 bytes to give to the peer.");
}

void bind_remote_region(nb::module_& m) {
  nb::class_<RemoteRegion> type(
      m, "RemoteRegion",
      "A peer's memory, or a part of it: a value to be passed around. [a:b] is a part that must lie inside.\n"
      "`key` is unguessable and dies with the region; `epoch` is the run of the program that exposed it.");
  type.def(
          "__init__",
          [](RemoteRegion* self, uint64_t addr, uint64_t length, uint64_t key, uint64_t epoch,
             uint64_t offset) { new (self) RemoteRegion{addr, length, key, epoch, offset}; },
          nb::arg("addr"), nb::arg("length"), nb::arg("key"), nb::arg("epoch"), nb::arg("offset") = 0)
      .def_ro("key", &RemoteRegion::key)
      .def_ro("epoch", &RemoteRegion::epoch)
      .def_ro("offset", &RemoteRegion::offset)
      .def("__repr__", [](const RemoteRegion& self) {
        const auto field = [](const char* name, uint64_t value) { return name + std::to_string(value); };
        return field("RemoteRegion(addr=", self.addr) + field(", length=", self.length) +
               field(", key=", self.key) + field(", epoch=", self.epoch) + field(", offset=", self.offset) +
               ")";
      });
  bind_value(type, "40 bytes to give to the peer by any means.");
}

}  // namespace verbena::bind
