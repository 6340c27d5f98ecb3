// Protection domains and the memory registered in them.
#pragma once

#include <atomic>
#include <memory>

#include "providers/ibv/context.h"
#include "providers/soft/windows.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvDomain final : public ProtectionDomain,
                        public Removable,
                        public std::enable_shared_from_this<IbvDomain> {
 public:
  explicit IbvDomain(std::shared_ptr<IbvContext> context);
  ~IbvDomain() override;

  std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                bool pin) override;
  std::shared_ptr<MemoryWindow> bind_window(const std::shared_ptr<MemoryRegion>& region, uint32_t access,
                                            const std::shared_ptr<QueuePair>& qp,
                                            const MemoryGroup* group) override;
  std::shared_ptr<QueuePair> create_qp(const QpOptions& options) override;
  std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) override;
  void close() override {}
  void on_removal() override;

  ibv_pd* get() const { return pd_; }  // during a use of the device
  const std::shared_ptr<IbvContext>& context() const { return context_; }

 private:
  const std::shared_ptr<IbvContext> context_;
  DeviceUse use_;
  ibv_pd* pd_;  // null after the removal
};

class IbvRegion final : public MemoryRegion, public Removable {
 public:
  IbvRegion(std::shared_ptr<IbvDomain> domain, ibv_mr* mr, uint32_t access)
      : domain_(std::move(domain)),
        use_(domain_->context()->use("register memory")),
        access_(access),
        addr_(static_cast<std::byte*>(mr->addr)),
        length_(mr->length),
        lkey_(mr->lkey),
        rkey_(mr->rkey),
        mr_(mr) {}
  ~IbvRegion() override { close(); }

  uint32_t lkey() const override { return lkey_; }
  uint32_t rkey() const override { return rkey_; }
  void close() override {
    windows_.close();  // memory with a bound window cannot be deregistered
    if (ibv_mr* mr = mr_.exchange(nullptr)) library().dereg_mr(mr), use_.end();
  }
  void on_removal() override { close(); }

  std::byte* addr() const { return addr_; }
  size_t length() const { return length_; }
  uint32_t access() const { return access_; }
  const IbvDomain& domain() const { return *domain_; }
  ibv_mr* get() const { return mr_; }
  soft::BoundWindows& windows() { return windows_; }

 private:
  const std::shared_ptr<IbvDomain> domain_;
  DeviceUse use_;
  const uint32_t access_;
  std::byte* const addr_;
  const size_t length_;
  const uint32_t lkey_, rkey_;
  std::atomic<ibv_mr*> mr_;
  soft::BoundWindows windows_;
};

}  // namespace verbena::ibv
