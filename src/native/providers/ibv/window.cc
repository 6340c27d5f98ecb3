#include "providers/ibv/window.h"

namespace verbena::ibv {

std::shared_ptr<IbvWindow> IbvWindow::bind(std::shared_ptr<IbvDomain> domain, const IbvRegion& region,
                                           uint32_t access, const std::shared_ptr<IbvQueuePair>& qp) {
  if (!qp->has_windows()) return nullptr;
  const DeviceUse use = domain->context()->use("bind a window");
  ibv_mw* mw = ibv_alloc_mw(domain->get(), IBV_MW_TYPE_2);
  if (!mw) return nullptr;  // the device has no more: max_mw
  auto window = std::make_shared<IbvWindow>(std::move(domain), qp, mw);
  const ibv_mw_bind_info info{.mr = region.get(),
                              .addr = reinterpret_cast<uint64_t>(region.addr()),
                              .length = region.length(),
                              .mw_access_flags = access};
  window->position_ = qp->post_bind(mw, window->rkey_, info);
  return window;
}

IbvWindow::IbvWindow(std::shared_ptr<IbvDomain> domain, const std::shared_ptr<IbvQueuePair>& qp, ibv_mw* mw)
    : domain_(std::move(domain)),
      use_(domain_->context()->use("bind a window")),
      qp_(qp),
      mw_(mw),
      rkey_(ibv_inc_rkey(mw->rkey)) {}

void IbvWindow::invalidate() {
  ibv_mw* mw = mw_.exchange(nullptr);
  if (!mw) return;
  // A bind that ran later than this would fail and break the queue pair.
  if (position_) {
    if (const auto qp = qp_.lock()) qp->await_bind(*position_);
  }
  ibv_dealloc_mw(mw);
  use_.end();
}

}  // namespace verbena::ibv
