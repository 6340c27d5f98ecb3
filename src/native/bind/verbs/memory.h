// Local memory of work requests: registered regions, slices of them, and scatter/gather lists.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include <vector>

#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/handle.h"
#include "verbs/provider.h"

namespace verbena::bind {

struct DomainHandle;

struct MemoryGroupHandle {
  std::shared_ptr<const MemoryGroup> group;
};

// A registered Python buffer, or memory allocated by the wire. Exports its bytes through the buffer protocol.
// The memory is freed when the region is closed and the last exported view is released.
class Region {
 public:
  // `options` apply if there is no buffer.
  Region(DomainHandle& domain, const nb::object& buffer, size_t length, uint32_t access, bool pin,
         const MemoryOptions& options);
  ~Region() { close(); }

  const MemoryRegion& use(const char* operation) const { return region_.use(operation); }
  const std::shared_ptr<MemoryRegion>& share(const char* operation) const { return region_.share(operation); }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  uint64_t length() const { return length_; }
  uint32_t access() const { return access_; }
  uint32_t lkey() const { return lkey_; }
  bool is_closed() const { return region_.is_closed(); }
  void close();

  int export_to(PyObject* self, Py_buffer* view, int flags);
  void export_ended();
  PyObject* owner() const { return view_.owner(); }

 private:
  struct Source {
    std::shared_ptr<Memory> memory;
    BufferView view;
  };
  static Source acquire(DomainHandle& domain, const nb::object& buffer, size_t length, uint32_t access,
                        const MemoryOptions& options);
  Region(DomainHandle& domain, Source source, uint32_t access, bool pin);
  void free_memory();

  Owned<Memory> memory_;
  BufferView view_;
  std::byte* data_;
  size_t length_;
  uint32_t access_;
  Handle<MemoryRegion> region_;
  uint32_t lkey_;
  size_t exports_ = 0;
  bool is_quiesced_ = false;  // closed, and no peer accesses the memory
};

struct MemorySlice {
  uint64_t addr = 0, length = 0, offset = 0;
  uint32_t lkey = 0;
  const Region* region = nullptr;
  nb::object owner;  // the region's Python object
};

// The scatter/gather list of a request, from a slice, a region, a sequence of them, or, if `inline_bytes`, a
// bytes object. Empty pieces are omitted. Holds no reference: the Python object must outlive it.
class LocalPieces {
 public:
  LocalPieces(const nb::handle& local, bool inline_bytes);

  std::span<const Sge> span() const { return more_.empty() ? std::span(inline_, count_) : std::span(more_); }
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  void add(const nb::handle& piece);
  void add(uint64_t addr, uint64_t length, uint32_t lkey);

  static constexpr size_t kInlineSges = 4;
  Sge inline_[kInlineSges];
  size_t count_ = 0;
  std::vector<Sge> more_;
  uint64_t total_bytes_ = 0;
};

}  // namespace verbena::bind
