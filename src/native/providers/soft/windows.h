// The windows of a region or of a queue pair, which end with it, and the rules for binding one.
// Depends on verbs/ and util/ only.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "verbs/provider.h"

namespace verbena::soft {

class BoundWindows {
 public:
  // False: closed, so the window must not be given to the caller.
  bool add(const std::shared_ptr<MemoryWindow>& window);
  // Invalidates all that were added. True: there was a valid one.
  bool invalidate();
  // Also refuses new ones.
  bool close();

 private:
  bool invalidate_all(bool and_close);

  std::mutex mutex_;
  bool closed_ = false;
  std::vector<std::weak_ptr<MemoryWindow>> windows_;
  size_t prune_at_ = 16;
};

// Throws unless a region that was registered with `region_access` allows a window with this access.
void check_window(uint32_t region_access, uint32_t access, QpState state);

// Returns the window if neither its region nor its queue pair was closed meanwhile, else throws.
std::shared_ptr<MemoryWindow> bound(std::shared_ptr<MemoryWindow> window, BoundWindows& region,
                                    BoundWindows& qp);

}  // namespace verbena::soft
