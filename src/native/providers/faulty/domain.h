// The wrapped protection domain. It knows the registered bytes, because a payload that is to be corrupted is
// copied here, before an inner provider has checked its keys.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "providers/faulty/peers.h"
#include "providers/faulty/provider.h"

namespace verbena::faulty {

// A private, registered copy of a payload; deregistered when dropped.
class Staged {
 public:
  Staged(std::shared_ptr<Memory> memory, std::shared_ptr<MemoryRegion> region)
      : memory_(std::move(memory)), region_(std::move(region)) {}
  ~Staged() { region_->close(); }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  Sge sge(uint32_t length) const {
    return {.addr = reinterpret_cast<uint64_t>(memory_->data()), .length = length, .lkey = region_->lkey()};
  }

 private:
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<MemoryRegion> region_;
};

class FaultyProtectionDomain final : public ProtectionDomain,
                                     public std::enable_shared_from_this<FaultyProtectionDomain> {
 public:
  FaultyProtectionDomain(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> inner,
                         std::shared_ptr<FaultPlan> plan, std::shared_ptr<Peers> peers);

  std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                bool pin) override;
  std::shared_ptr<MemoryWindow> bind_window(const std::shared_ptr<MemoryRegion>& region, uint32_t access,
                                            const std::shared_ptr<QueuePair>& qp,
                                            const MemoryGroup* group) override;
  std::shared_ptr<QueuePair> create_qp(const QpOptions& options) override;
  std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) override {
    return inner_->create_srq(max_recv, max_sge);
  }
  void close() override { inner_->close(); }

  // Copies the bytes of `local`. Empty when there are none or when they are not registered: the inner
  // provider then reports that itself. Throws when there is no memory for the copy.
  std::shared_ptr<Staged> stage(std::span<const Sge> local);
  void forget(uint32_t lkey);

 private:
  bool is_registered(const Sge& sge) const;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProtectionDomain> inner_;
  const std::shared_ptr<FaultPlan> plan_;
  const std::shared_ptr<Peers> peers_;
  std::mutex mutex_;  // also held during the copy, so that a region cannot be closed meanwhile
  std::unordered_map<uint32_t, std::span<std::byte>> regions_;
};

}  // namespace verbena::faulty
