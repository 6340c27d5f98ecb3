#include "bind/verbs/memory.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bind/unlocked.h"
#include "bind/verbs/domain.h"
#include "bind/verbs/remote.h"
#include "util/error.h"

namespace verbena::bind {
namespace {

constexpr uint32_t kWrites = access::local_write | access::remote_write | access::remote_atomic;

PyTypeObject* region_type = nullptr;
PyTypeObject* slice_type = nullptr;

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
                               const MemoryOptions& options) {
  domain.pd.use("register");
  if (buffer.is_none()) {
    const Unlocked unlocked;
    return {domain.context->allocate(length, options), {}};
  }
  if (!PyObject_CheckBuffer(buffer.ptr()))
    throw nb::type_error("a buffer is needed: bytearray, array, mmap, numpy …");
  // Accept any layout first, so that read-only and non-contiguous buffers get different errors.
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
               const MemoryOptions& options)
    : Region(domain, acquire(domain, buffer, length, access, options), access, pin) {}

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
  // Not earlier: another thread may have released the last view while a peer still accessed the memory.
  is_quiesced_ = true;
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
  if (--exports_ == 0 && is_quiesced_) free_memory();
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
  if (count_ < kInlineSges) {
    inline_[count_++] = piece;
    return;
  }
  if (more_.empty()) more_.assign(inline_, inline_ + count_);
  more_.push_back(piece);
}

void bind_memory(nb::module_& m) {
  static const PyType_Slot slots[] = {{Py_bf_getbuffer, slot(get_buffer)},
                                      {Py_bf_releasebuffer, slot(release_buffer)},
                                      {Py_tp_traverse, slot(traverse)},
                                      {0, nullptr}};
  nb::class_<MemoryGroupHandle>(m, "MemoryGroup", "Memory that is shared with the same peers.");
  const auto make_region = [](Region* self, DomainHandle& domain, const nb::object& buffer, size_t length,
                              uint32_t access, bool pin, bool huge_pages, std::optional<uint32_t> peer_access,
                              const MemoryGroupHandle* group) {
    new (self) Region(domain, buffer, length, access, pin,
                      {.huge_pages = huge_pages,
                       .peer_access = peer_access.value_or(access),
                       .group = group ? group->group : domain.group});
  };
  auto region =
      nb::class_<Region>(m, "MemoryRegion", nb::type_slots(slots))
          .def("__init__", make_region, nb::arg("pd"), nb::arg("buffer").none(), nb::arg("length"),
               nb::arg("access"), nb::arg("pin"), nb::arg("huge_pages"), nb::arg("peer_access") = nb::none(),
               nb::arg("group") = nb::none())
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
}

}  // namespace verbena::bind
