#include "providers/faulty/domain.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "providers/faulty/completion_queue.h"
#include "providers/faulty/queue_pair.h"
#include "providers/faulty/unwrap.h"

namespace verbena::faulty {
namespace {

class FaultyRegion final : public MemoryRegion {
 public:
  FaultyRegion(std::shared_ptr<FaultyProtectionDomain> pd, std::shared_ptr<MemoryRegion> inner)
      : pd_(std::move(pd)), inner_(std::move(inner)) {}
  ~FaultyRegion() override { close(); }

  uint32_t lkey() const override { return inner_->lkey(); }
  uint32_t rkey() const override { return inner_->rkey(); }
  void close() override {
    if (closed_.exchange(true)) return;  // the inner provider may give the key to another region from now on
    pd_->forget(lkey());
    inner_->close();
  }
  const std::shared_ptr<MemoryRegion>& inner() const { return inner_; }

 private:
  const std::shared_ptr<FaultyProtectionDomain> pd_;
  const std::shared_ptr<MemoryRegion> inner_;
  std::atomic<bool> closed_{false};
};

}  // namespace

FaultyProtectionDomain::FaultyProtectionDomain(std::shared_ptr<Context> context,
                                               std::shared_ptr<ProtectionDomain> inner,
                                               std::shared_ptr<FaultPlan> plan, std::shared_ptr<Peers> peers)
    : context_(std::move(context)),
      inner_(std::move(inner)),
      plan_(std::move(plan)),
      peers_(std::move(peers)) {}

std::shared_ptr<MemoryRegion> FaultyProtectionDomain::register_memory(std::byte* addr, size_t length,
                                                                      uint32_t access, bool pin) {
  auto inner = inner_->register_memory(addr, length, access, pin);
  const std::lock_guard lock(mutex_);
  regions_[inner->lkey()] = {addr, length};
  return std::make_shared<FaultyRegion>(shared_from_this(), std::move(inner));
}

std::shared_ptr<MemoryWindow> FaultyProtectionDomain::bind_window(const std::shared_ptr<MemoryRegion>& region,
                                                                  uint32_t access,
                                                                  const std::shared_ptr<QueuePair>& qp,
                                                                  const MemoryGroup* group) {
  return inner_->bind_window(unwrap<FaultyRegion>(region, "bind a window")->inner(), access,
                             unwrap<FaultyQueuePair>(qp, "bind a window")->inner(), group);
}

std::shared_ptr<QueuePair> FaultyProtectionDomain::create_qp(const QpOptions& options) {
  const auto send_cq = unwrap<FaultyCompletionQueue>(options.send_cq, "create queue pair");
  const auto recv_cq = unwrap<FaultyCompletionQueue>(options.recv_cq, "create queue pair");
  // Each queue pair has its own inner send queue, where it orders injected completions among real ones. Twice
  // the depth: a request may be duplicated.
  QpOptions inner_options = options;
  inner_options.send_cq = context_->create_cq(std::max(2 * options.limits.max_send, 1u));
  inner_options.recv_cq = recv_cq->receives();
  auto qp =
      std::make_shared<FaultyQueuePair>(shared_from_this(), plan_, peers_, inner_->create_qp(inner_options),
                                        inner_options.send_cq, send_cq, recv_cq, options.signal_all);
  qp->attach();
  return qp;
}

std::shared_ptr<Staged> FaultyProtectionDomain::stage(std::span<const Sge> local) {
  size_t total = 0;
  for (const Sge& sge : local) total += sge.length;
  if (total == 0) return nullptr;
  auto memory = context_->allocate(total, {});
  {
    const std::lock_guard lock(mutex_);
    if (!std::ranges::all_of(local, [this](const Sge& sge) { return is_registered(sge); })) return nullptr;
    std::byte* out = memory->data();
    for (const Sge& sge : local) {
      std::memcpy(out, reinterpret_cast<const std::byte*>(sge.addr), sge.length);
      out += sge.length;
    }
  }
  auto region = inner_->register_memory(memory->data(), total, access::local_write, false);
  return std::make_shared<Staged>(std::move(memory), std::move(region));
}

void FaultyProtectionDomain::forget(uint32_t lkey) {
  const std::lock_guard lock(mutex_);
  regions_.erase(lkey);
}

bool FaultyProtectionDomain::is_registered(const Sge& sge) const {
  const auto found = regions_.find(sge.lkey);
  if (found == regions_.end()) return false;
  const auto begin = reinterpret_cast<uint64_t>(found->second.data());
  return sge.addr >= begin && sge.length <= found->second.size() &&
         sge.addr - begin <= found->second.size() - sge.length;
}

}  // namespace verbena::faulty
