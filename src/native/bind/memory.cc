#include "bind/memory.h"

#include <nanobind/stl/string.h>

#include <cstring>

#include "bind/domain.h"
#include "bind/unlocked.h"
#include "util/error.h"

namespace verbena::bind {
namespace {

constexpr uint32_t kWrites = access::local_write | access::remote_write | access::remote_atomic;

PyTypeObject* region_type = nullptr;
PyTypeObject* slice_type = nullptr;

struct Range {
  uint64_t offset, length;
};

// The bounds of [start:stop]; unlike a list's they must lie inside.
Range range_of(const nb::slice& slice, uint64_t length, const char* operation) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  if (step != 1) throw Error("invalid_argument", operation, "a slice of memory has no step");
  const auto size = static_cast<Py_ssize_t>(length);
  if (start < 0) start += size;
  if (stop == PY_SSIZE_T_MAX) stop = size;  // [start:]
  if (stop < 0) stop += size;
  if (start < 0 || stop < start || stop > size) {
    throw Error("out_of_range", operation,
                "[" + std::to_string(start) + ":" + std::to_string(stop) + "] of " + std::to_string(length) +
                    " bytes");
  }
  return {static_cast<uint64_t>(start), static_cast<uint64_t>(stop - start)};
}

template <typename T>
void put(char*& at, T value) {
  for (size_t i = 0; i < sizeof value; ++i) *at++ = static_cast<char>(value >> (8 * i) & 0xff);
}

template <typename T>
T get(const char*& at) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= static_cast<T>(static_cast<uint8_t>(*at++)) << (8 * i);
  return value;
}

constexpr size_t kRemoteBytes = 20;  // addr, length, rkey; little endian

nb::bytes to_bytes(const RemoteMemory& self) {
  char text[kRemoteBytes];
  char* at = text;
  put(at, self.addr);
  put(at, self.length);
  put(at, self.rkey);
  return nb::bytes(text, sizeof text);
}

RemoteMemory from_bytes(const nb::bytes& data) {
  if (data.size() != kRemoteBytes) {
    throw nb::value_error(("a RemoteMemory is 20 bytes, not " + std::to_string(data.size())).c_str());
  }
  const char* at = data.c_str();
  RemoteMemory remote;
  remote.addr = get<uint64_t>(at);
  remote.length = get<uint64_t>(at);
  remote.rkey = get<uint32_t>(at);
  return remote;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  return nb::inst_ptr<Region>(self)->export_to(self, view, flags);
}

void release_buffer(PyObject* self, Py_buffer*) { nb::inst_ptr<Region>(self)->export_ended(); }

int traverse(PyObject* self, visitproc visit, void* arg) {
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Region>(self)->owner());
  Py_VISIT(Py_TYPE(self));
  return 0;
}

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

MemorySlice slice_region(const nb::pointer_and_handle<Region>& self, const nb::slice& slice) {
  self.p->use("slice");
  const Range range = range_of(slice, self.p->length(), "slice");
  return {.addr = self.p->addr() + range.offset,
          .length = range.length,
          .offset = range.offset,
          .lkey = self.p->lkey(),
          .region = self.p,
          .owner = nb::borrow(self.h)};
}

}  // namespace

Region::Source Region::acquire(DomainHandle& domain, const nb::object& buffer, size_t length, uint32_t access,
                               bool huge_pages) {
  domain.pd.use("register");
  if (buffer.is_none()) {
    const Unlocked unlocked;
    return {domain.context->allocate(length, huge_pages), {}};
  }
  if (!PyObject_CheckBuffer(buffer.ptr()))
    throw nb::type_error("a buffer is needed: bytearray, array, mmap, numpy …");
  // Any layout first, so that what is wrong with it can be told apart.
  const BufferView any(buffer, PyBUF_FULL_RO);
  if ((access & kWrites) && any.readonly()) {
    throw Error("buffer_readonly", "register",
                "LOCAL_WRITE, REMOTE_WRITE and REMOTE_ATOMIC need a writable buffer");
  }
  try {
    return {nullptr, BufferView(buffer, any.readonly() ? PyBUF_SIMPLE : PyBUF_WRITABLE)};
  } catch (const nb::python_error&) {
    throw Error("buffer_not_contiguous", "register", "the buffer is not C-contiguous");
  }
}

Region::Region(DomainHandle& domain, const nb::object& buffer, size_t length, uint32_t access, bool pin,
               bool huge_pages)
    : Region(domain, acquire(domain, buffer, length, access, huge_pages), access, pin) {}

Region::Region(DomainHandle& domain, Source source, uint32_t access, bool pin)
    : memory_(std::move(source.memory)),
      view_(std::move(source.view)),
      data_(memory_.share() ? memory_->data() : view_.data()),
      length_(memory_.share() ? memory_->size() : view_.size()),
      access_(access),
      region_(
          [&] {
            const Unlocked unlocked;
            return domain.pd.use("register").register_memory(data_, length_, access, pin);
          }(),
          "memory region"),
      lkey_(region_.core()->lkey()) {}

void Region::close() {
  if (is_closed()) return;
  if (region_.start_close()) {
    const Unlocked unlocked;
    region_.core()->close();
  }
  // Only now: another thread may have dropped the last view while a peer was still inside.
  quiet_ = true;
  if (exports_ == 0) free_memory();
}

void Region::free_memory() {
  view_.release();
  memory_.reset();
}

int Region::export_to(PyObject* self, Py_buffer* view, int flags) {
  if (is_closed()) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the memory region is closed");
    return -1;
  }
  const bool readonly = view_.owner() && view_.readonly();
  const int status = PyBuffer_FillInfo(view, self, data_, static_cast<Py_ssize_t>(length_), readonly, flags);
  if (status == 0) ++exports_;
  return status;
}

void Region::export_ended() {
  if (--exports_ == 0 && quiet_) free_memory();
}

LocalPieces::LocalPieces(const nb::handle& local, bool inline_bytes) {
  if (Py_TYPE(local.ptr()) == slice_type || PyObject_TypeCheck(local.ptr(), region_type)) {
    add(local);
  } else if (PyBytes_Check(local.ptr())) {
    if (!inline_bytes)
      throw nb::type_error("bytes are not registered memory: they can only be sent inline=True");
    char* text;
    Py_ssize_t length;
    PyBytes_AsStringAndSize(local.ptr(), &text, &length);
    add(reinterpret_cast<uint64_t>(text), static_cast<uint64_t>(length), 0);
  } else if (PyTuple_Check(local.ptr()) || PyList_Check(local.ptr())) {
    for (const nb::handle piece : nb::iter(local)) add(piece);
  } else {
    throw nb::type_error(
        "local memory is a MemorySlice, a MemoryRegion, a sequence of them, or bytes sent inline");
  }
}

void LocalPieces::add(const nb::handle& piece) {
  if (Py_TYPE(piece.ptr()) == slice_type) {
    const MemorySlice& slice = *nb::inst_ptr<MemorySlice>(piece);
    slice.region->use("use memory");
    return add(slice.addr, slice.length, slice.lkey);
  }
  if (!PyObject_TypeCheck(piece.ptr(), region_type))
    throw nb::type_error("a MemorySlice or MemoryRegion is needed");
  const Region& region = *nb::inst_ptr<Region>(piece);
  region.use("use memory");
  add(region.addr(), region.length(), region.lkey());
}

void LocalPieces::add(uint64_t addr, uint64_t length, uint32_t lkey) {
  if (length == 0) return;
  if (length > UINT32_MAX) throw Error("limit_exceeded", "use memory", "a piece is longer than 4 GiB");
  total_bytes_ += length;
  const Sge piece{addr, static_cast<uint32_t>(length), lkey};
  if (count_ < kFew) {
    few_[count_++] = piece;
    return;
  }
  if (more_.empty()) more_.assign(few_, few_ + count_);
  more_.push_back(piece);
}

void bind_memory(nb::module_& m) {
  static const PyType_Slot slots[] = {{Py_bf_getbuffer, slot(get_buffer)},
                                      {Py_bf_releasebuffer, slot(release_buffer)},
                                      {Py_tp_traverse, slot(traverse)},
                                      {0, nullptr}};
  auto region =
      nb::class_<Region>(m, "MemoryRegion", nb::type_slots(slots))
          .def(nb::init<DomainHandle&, const nb::object&, size_t, uint32_t, bool, bool>(), nb::arg("pd"),
               nb::arg("buffer").none(), nb::arg("length"), nb::arg("access"), nb::arg("pin"),
               nb::arg("huge_pages"))
          .def_prop_ro("addr", &Region::addr, "Where the region begins, for the local and the remote side.")
          .def_prop_ro("length", &Region::length, "Its size in bytes.")
          .def_prop_ro(
              "lkey", [](const Region& self) { return self.use("lkey").lkey(); }, "The key for local use.")
          .def_prop_ro(
              "rkey", [](const Region& self) { return self.use("rkey").rkey(); }, "The key for peers.")
          .def_prop_ro(
              "remote",
              [](const Region& self) {
                return RemoteMemory{self.addr(), self.use("remote").rkey(), self.length()};
              },
              "What a peer needs to reach all of it.")
          .def_prop_ro("closed", &Region::is_closed)
          .def_prop_ro("access_flags", &Region::access)
          .def("__len__", &Region::length)
          .def("__getitem__", slice_region, nb::arg("part"),
               "A part of it, [start:stop], which must lie inside.")
          .def("close", &Region::close,
               "Ends the registration: afterwards its keys are refused. Views of the bytes stay valid.");
  region_type = reinterpret_cast<PyTypeObject*>(region.ptr());

  auto slice = nb::class_<MemorySlice>(m, "MemorySlice", nb::is_final(), "A part of a memory region.")
                   .def_ro("addr", &MemorySlice::addr)
                   .def_ro("offset", &MemorySlice::offset)
                   .def_ro("length", &MemorySlice::length)
                   .def_ro("lkey", &MemorySlice::lkey)
                   .def_ro("region", &MemorySlice::owner)
                   .def("__len__", [](const MemorySlice& self) { return self.length; })
                   .def(
                       "__getitem__",
                       [](const MemorySlice& self, const nb::slice& part) {
                         const Range range = range_of(part, self.length, "slice");
                         MemorySlice inner = self;
                         inner.addr += range.offset;
                         inner.offset += range.offset;
                         inner.length = range.length;
                         return inner;
                       },
                       nb::arg("part"))
                   .def("__repr__", [](const MemorySlice& self) {
                     return "MemorySlice(offset=" + std::to_string(self.offset) +
                            ", length=" + std::to_string(self.length) + ")";
                   });
  slice_type = reinterpret_cast<PyTypeObject*>(slice.ptr());

  nb::class_<RemoteMemory>(m, "RemoteMemory", nb::is_final(),
                           "A peer's memory: address, key and length. A value.")
      .def(
          "__init__",
          [](RemoteMemory* self, uint64_t addr, uint32_t rkey, uint64_t length) {
            new (self) RemoteMemory{addr, rkey, length};
          },
          nb::arg("addr"), nb::arg("rkey"), nb::arg("length"))
      .def_ro("addr", &RemoteMemory::addr)
      .def_ro("rkey", &RemoteMemory::rkey)
      .def_ro("length", &RemoteMemory::length)
      .def("__len__", [](const RemoteMemory& self) { return self.length; })
      .def(
          "__getitem__",
          [](const RemoteMemory& self, const nb::slice& part) {
            const Range range = range_of(part, self.length, "slice");
            return RemoteMemory{self.addr + range.offset, self.rkey, range.length};
          },
          nb::arg("part"), "A part of it, [start:stop], which must lie inside.")
      .def("to_bytes", to_bytes, "20 bytes to give to the peer.")
      .def_static("from_bytes", from_bytes, nb::arg("data"),
                  "The value that to_bytes() described; else ValueError.")
      .def(
          "__eq__",
          [](const RemoteMemory& self, const nb::object& other) {
            RemoteMemory value;
            return nb::try_cast<RemoteMemory>(other, value) && self == value;
          },
          nb::arg("other").none())
      .def("__hash__",
           [](const RemoteMemory& self) {
             return nb::hash(nb::make_tuple(self.addr, self.rkey, self.length));
           })
      .def(
          "__reduce__",
          [](const RemoteMemory& self) {
            return nb::make_tuple(nb::type<RemoteMemory>(),
                                  nb::make_tuple(self.addr, self.rkey, self.length));
          },
          nb::sig("def __reduce__(self) -> tuple[type, tuple[int, int, int]]"))
      .def("__repr__", [](const RemoteMemory& self) {
        char text[96];
        std::snprintf(text, sizeof text, "RemoteMemory(addr=0x%llx, rkey=0x%x, length=%llu)",
                      static_cast<unsigned long long>(self.addr), self.rkey,
                      static_cast<unsigned long long>(self.length));
        return std::string(text);
      });
}

}  // namespace verbena::bind
