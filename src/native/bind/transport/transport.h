// Python's handles on nodes, ports, links, sessions, event queues and exposed regions.
// May depend on bind/, transport/, verbs/ and util/ only.
#pragma once

#include <optional>

#include "bind/buffer.h"
#include "bind/handle.h"
#include "bind/unlocked.h"
#include "bind/verbs/queues.h"
#include "transport/node/node.h"

namespace verbena::bind {

struct NodeHandle {
  explicit NodeHandle(std::shared_ptr<transport::Node> object) : node(std::move(object), "node") {}
  ~NodeHandle() { close(); }

  void close() {
    if (!node.start_close()) return;
    transport::RegistrationCache::Owners dropped;  // declared first: destroyed with the GIL
    const Unlocked unlocked;
    node.core()->close();
    const auto held = node.core()->lock();
    dropped = node.core()->registrations().clear();
  }

  Handle<transport::Node> node;
};

// Owns an exported Python buffer: the export keeps the memory in place.
class BufferOwner final : public transport::MemoryOwner {
 public:
  explicit BufferOwner(BufferView view) : view_(std::move(view)) {}
  bool is_last_reference() const override { return Py_REFCNT(view_.owner()) == 1; }

 private:
  BufferView view_;
};

struct PortHandle {
  Owned<transport::Node> node;
  Owned<transport::Port> port;
};

struct CaptureHandle {
  std::shared_ptr<transport::Capture> capture;
};

struct QueueHandle {
  Owned<transport::EventQueue> queue{std::make_shared<transport::EventQueue>()};
};

// A link that is not attached to a session yet. The node must know its queue pair before the peer's first
// message arrives.
struct LinkHandle {
  ~LinkHandle() { drop(); }
  void drop() {
    if (node.is_inherited()) link.release();  // leaked: see bind/handle.h
    if (!link) return;
    const auto held = node->lock();
    link.reset();
  }

  Owned<transport::Node> node;
  std::unique_ptr<transport::Link> link;
};

struct SessionHandle {
  // Throws `forked` in a child, before any lock of the node is taken.
  transport::Session& use(const char* operation) const {
    node.use(operation);
    return *session.core();
  }

  Owned<transport::Node> node;
  Owned<transport::Session> session;
  uint64_t peer_epoch;  // identifies the peer's run: regions of another run no longer exist
};

struct AudienceHandle {
  std::shared_ptr<transport::Audience> audience;
};

// Memory that peers may access. Exports its bytes through the buffer protocol: the memory is released when it
// is revoked and the last exported view is gone.
class ExposedRegionHandle {
 public:
  ExposedRegionHandle(Owned<transport::Node> node, BufferView view, Owned<transport::ExposedRegion> region)
      : node_(std::move(node)),
        view_(std::move(view)),
        region_(std::move(region)),
        data_(view_.data()),
        length_(view_.size()),
        is_readonly_(view_.readonly()) {}
  ~ExposedRegionHandle() { revoke(); }

  uint64_t key() const { return region_ ? region_.core()->key : 0; }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  uint64_t length() const { return length_; }
  void revoke();

  int export_to(PyObject* self, Py_buffer* view, int flags);
  void export_ended();

 private:
  Owned<transport::Node> node_;
  BufferView view_;
  Owned<transport::ExposedRegion> region_;
  std::byte* const data_;
  const size_t length_;
  const bool is_readonly_;
  size_t exports_ = 0;
  bool is_revoked_ = false;  // no peer accesses the memory
};

void bind_exposed_region(nb::module_& m);

// Locks the node from a thread that holds the GIL. Releases the GIL while it waits for the lock, and never
// waits for the GIL with the lock held: a thread that holds the GIL may be waiting for the lock.
inline std::unique_lock<YieldingMutex> lock_from_python(transport::Node& node) {
  auto held = node.try_lock();
  if (held) return held;
  const YieldingMutex::Reservation wish = node.reserve_lock();
  while (!held) {
    {
      const Unlocked unlocked;
      const auto wait = node.lock();
    }
    held = node.try_lock();
  }
  return held;
}

}  // namespace verbena::bind
