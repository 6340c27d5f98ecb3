// Binds the memory that a node exposes to its peers.
#include "bind/bind.h"
#include "bind/transport/session.h"

namespace verbena::bind {
namespace {

int get_region_buffer(PyObject* self, Py_buffer* view, int flags) {
  return nb::inst_ptr<ExposedRegionHandle>(self)->export_to(self, view, flags);
}

void release_region_buffer(PyObject* self, Py_buffer*) {
  nb::inst_ptr<ExposedRegionHandle>(self)->export_ended();
}

void make_exposed_region(ExposedRegionHandle* self, NodeHandle& handle, const nb::handle& buffer,
                         uint32_t access, const AudienceHandle& audience) {
  const auto& node = handle.node.share("expose memory");
  const bool writes = access & (access::remote_write | access::remote_atomic);
  BufferView view = view_of(buffer, "expose", writes);
  const auto held = lock_from_python(*node);
  auto region = node->regions().expose(view.data(), view.size(), access, audience.audience);
  new (self) ExposedRegionHandle(Owned(node), std::move(view), Owned(std::move(region)));
}

}  // namespace

void ExposedRegionHandle::revoke() {
  if (!region_ || region_.is_inherited()) return;
  {
    const Unlocked unlocked;
    transport::RevokedRegion revoked;
    {
      const auto held = node_->lock();
      revoked = node_->revoke(*region_);
    }
    revoked.finish();
  }
  region_.reset();
  is_revoked_ = true;
  if (exports_ == 0) view_.release();
}

int ExposedRegionHandle::export_to(PyObject* self, Py_buffer* view, int flags) {
  if (!region_) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the region is closed");
    return -1;
  }
  const int status =
      PyBuffer_FillInfo(view, self, data_, static_cast<Py_ssize_t>(length_), is_readonly_, flags);
  if (status == 0) ++exports_;
  return status;
}

void ExposedRegionHandle::export_ended() {
  if (--exports_ == 0 && is_revoked_) view_.release();
}

void bind_exposed_region(nb::module_& m) {
  // No traversal for the garbage collector: if it clears a memoryview, that must have no exports, and the
  // region's own view of the memory is one.
  static const PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_region_buffer)},
                                      {Py_bf_releasebuffer, reinterpret_cast<void*>(release_region_buffer)},
                                      {0, nullptr}};
  nb::class_<ExposedRegionHandle>(m, "ExposedRegion", "Memory that peers may use.", nb::type_slots(slots))
      .def("__init__", make_exposed_region, nb::arg("node"), nb::arg("buffer"), nb::kw_only(),
           nb::arg("access"), nb::arg("audience"))
      .def_prop_ro("key", &ExposedRegionHandle::key, "0: it was revoked.")
      .def_prop_ro("addr", &ExposedRegionHandle::addr)
      .def_prop_ro("length", &ExposedRegionHandle::length)
      .def("revoke", &ExposedRegionHandle::revoke,
           "Afterwards the key is refused, and no peer accesses the memory.");
}

}  // namespace verbena::bind
