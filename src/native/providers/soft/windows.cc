#include "providers/soft/windows.h"

#include <algorithm>

#include "util/error.h"

namespace verbena::soft {
namespace {

constexpr const char* kBind = "bind a window";

}  // namespace

bool BoundWindows::add(const std::shared_ptr<MemoryWindow>& window) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  if (windows_.size() >= prune_at_) {
    std::erase_if(windows_, [](const auto& known) { return known.expired(); });
    prune_at_ = std::max<size_t>(16, 2 * windows_.size());
  }
  windows_.push_back(window);
  return true;
}

bool BoundWindows::invalidate() { return invalidate_all(false); }
bool BoundWindows::close() { return invalidate_all(true); }

bool BoundWindows::invalidate_all(bool and_close) {
  std::vector<std::weak_ptr<MemoryWindow>> ended;
  {
    const std::lock_guard lock(mutex_);
    closed_ |= and_close;
    ended.swap(windows_);
  }
  bool was_any = false;
  for (const auto& known : ended) {
    if (const auto window = known.lock()) {
      window->invalidate();
      was_any = true;
    }
  }
  return was_any;
}

void check_window(uint32_t region_access, uint32_t access, QpState state) {
  if ((access & access::remote) == 0 || (access & ~access::remote) != 0)
    throw Error("invalid_argument", kBind, "a window gives REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC");
  if (!(region_access & access::window))
    throw Error("invalid_argument", kBind, "the region was registered without WINDOW");
  if ((access & ~access::remote_read) && !(region_access & access::local_write))
    throw Error("invalid_argument", kBind, "REMOTE_WRITE and REMOTE_ATOMIC need a region with LOCAL_WRITE");
  if (state == QpState::reset || state == QpState::init || state == QpState::rtr)
    throw Error("invalid_argument", kBind, "the queue pair must be in RTS");
}

std::shared_ptr<MemoryWindow> bound(std::shared_ptr<MemoryWindow> window, BoundWindows& region,
                                    BoundWindows& qp) {
  if (region.add(window) && qp.add(window)) return window;
  window->invalidate();
  throw Error("closed", kBind, "the region or the queue pair was closed");
}

}  // namespace verbena::soft
