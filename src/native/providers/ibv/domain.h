// Protection domains and the memory registered in them.
#pragma once

#include <atomic>
#include <memory>

#include "providers/ibv/context.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvDomain final : public ProtectionDomain, public std::enable_shared_from_this<IbvDomain> {
 public:
  explicit IbvDomain(std::shared_ptr<IbvContext> context);
  ~IbvDomain() override;

  std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                bool pin) override;
  std::shared_ptr<QueuePair> create_qp(const QpOptions& options) override;
  std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) override;
  void close() override {}

  ibv_pd* get() const { return pd_; }
  const std::shared_ptr<IbvContext>& context() const { return context_; }

 private:
  const std::shared_ptr<IbvContext> context_;
  ibv_pd* const pd_;
};

class IbvRegion final : public MemoryRegion {
 public:
  IbvRegion(std::shared_ptr<IbvDomain> domain, ibv_mr* mr)
      : domain_(std::move(domain)), lkey_(mr->lkey), rkey_(mr->rkey), mr_(mr) {}
  ~IbvRegion() override { close(); }

  uint32_t lkey() const override { return lkey_; }
  uint32_t rkey() const override { return rkey_; }
  void close() override {
    if (ibv_mr* mr = mr_.exchange(nullptr)) library().dereg_mr(mr);
  }

 private:
  const std::shared_ptr<IbvDomain> domain_;
  const uint32_t lkey_, rkey_;
  std::atomic<ibv_mr*> mr_;
};

}  // namespace verbena::ibv
