// A memory window of type 2, bound by a request on the send queue of its queue pair.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "providers/ibv/domain.h"
#include "providers/ibv/queue_pair.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvWindow final : public MemoryWindow {
 public:
  // Posts the bind. Null: the device has no windows left, or lacks them.
  static std::shared_ptr<IbvWindow> bind(std::shared_ptr<IbvDomain> domain, const IbvRegion& region,
                                         uint32_t access, const std::shared_ptr<IbvQueuePair>& qp);

  IbvWindow(std::shared_ptr<IbvDomain> domain, const std::shared_ptr<IbvQueuePair>& qp, ibv_mw* mw);
  ~IbvWindow() override { IbvWindow::invalidate(); }
  uint32_t rkey() const override { return rkey_; }
  void invalidate() override;

 private:
  const std::shared_ptr<IbvDomain> domain_;
  DeviceUse use_;
  const std::weak_ptr<IbvQueuePair> qp_;
  std::atomic<ibv_mw*> mw_;
  const uint32_t rkey_;
  std::optional<uint32_t> position_;  // of the bind in the send queue, if it was posted
};

}  // namespace verbena::ibv
