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
  std::shared_ptr<transport::EventQueue> queue = std::make_shared<transport::EventQueue>();
};

// A link that is not attached to a session yet. The node must know its queue pair before the peer's first
// message arrives.
struct LinkHandle {
  ~LinkHandle() { drop(); }
  void drop() {
    if (!link || node.is_inherited()) return;
    const auto held = node->lock();
    link.reset();
  }

  Owned<transport::Node> node;
  std::unique_ptr<transport::Link> link;
};

struct SessionHandle {
  Owned<transport::Node> node;
  Owned<transport::Session> session;
  uint64_t peer_epoch;  // identifies the peer's run: regions of another run no longer exist
};

// Memory that peers may access. The buffer view keeps it alive until it is revoked.
struct ExposedRegionHandle {
  ~ExposedRegionHandle() { revoke(); }
  void revoke() {
    if (!region || node.is_inherited()) return;
    {
      const Unlocked unlocked;
      const auto held = node->lock();
      node->regions().revoke(*region);
    }
    region.reset();
    view.release();
  }

  Owned<transport::Node> node;
  BufferView view;
  std::shared_ptr<transport::ExposedRegion> region;
};

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
