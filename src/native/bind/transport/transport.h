// Nodes, sessions and what they are made of, as Python holds them.
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
    transport::RegistrationCache::Owners dropped;  // with the GIL
    const Unlocked unlocked;
    node.core()->close();
    const auto held = node.core()->lock();
    dropped = node.core()->registrations().clear();
  }

  Handle<transport::Node> node;
};

// A buffer of the program's: whatever its export holds stays where it is.
class BufferOwner final : public transport::MemoryOwner {
 public:
  explicit BufferOwner(BufferView view) : view_(std::move(view)) {}
  bool is_alone() const override { return Py_REFCNT(view_.owner()) == 1; }

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

// A queue pair that is becoming a session's link: it must be known before the peer's first message arrives.
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
  uint64_t peer_epoch;  // the peer's run: regions of another are not there any more
};

// Memory that peers may use, held by its buffer until it is revoked.
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

// The node's lock, without keeping the GIL from others while waiting for it. Nor is the GIL waited for with
// the lock in hand: somebody who has the GIL may want the lock.
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
