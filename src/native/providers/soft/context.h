// SoftContext and SoftDomain: what the contexts and protection domains of all software wires share (numbers,
// registration, closing). A wire derives from SoftContext and creates its own queue pairs. Depends on verbs/
// and util/ only.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "providers/soft/queue_pair.h"
#include "providers/soft/regions.h"
#include "verbs/provider.h"

namespace verbena::soft {

struct ArenaLocation {
  uint32_t arena = 0;  // 0: not in an arena
  uint64_t offset = 0;
};

class SoftContext : public Context, public std::enable_shared_from_this<SoftContext> {
 public:
  explicit SoftContext(RegionEntry* entries) : regions_(entries) {}

  std::shared_ptr<ProtectionDomain> alloc_pd() override;
  std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) final;

  RegionTable& regions() { return regions_; }
  virtual std::shared_ptr<SoftQueuePair> make_qp(std::shared_ptr<SoftDomain> domain, const QpOptions& options,
                                                 uint32_t number) = 0;
  virtual std::shared_ptr<SoftCompletionQueue> make_cq(uint32_t depth) = 0;
  // The arena that contains this memory, if peers of this group (null: of any) may map it for this access.
  virtual ArenaLocation locate(const std::byte* addr, size_t length, uint32_t access,
                               const MemoryGroup* group) const;
  // A region or window was published: peers within its scope will need the arena.
  virtual void share(uint32_t scope, uint32_t arena);
  virtual void unshare(uint32_t scope, uint32_t arena);
  // Returns when no thread of this process and no peer uses a region whose key was removed before.
  void quiesce() override;

  std::shared_ptr<SoftQueuePair> create_qp(std::shared_ptr<SoftDomain> domain, const QpOptions& options);
  void remove_qp(SoftQueuePair& qp);
  // Runs `visit` on each open queue pair; none is destroyed meanwhile.
  template <typename Visit>
  void for_each_qp(Visit visit) {
    const std::lock_guard lock(qps_mutex_);
    for (auto& [number, qp] : qps_) visit(*qp);
  }
  // Runs `visit` on the QP with that number; false when there is none.
  template <typename Visit>
  bool with_qp(uint32_t number, Visit visit) {
    const std::lock_guard lock(qps_mutex_);
    const auto found = qps_.find(number);
    if (found == qps_.end()) return false;
    visit(*found->second);
    return true;
  }

 private:
  RegionTable regions_;
  std::mutex qps_mutex_;
  std::map<uint32_t, SoftQueuePair*> qps_;
  std::atomic<uint32_t> next_pd_{1};
};

class SoftDomain final : public ProtectionDomain, public std::enable_shared_from_this<SoftDomain> {
 public:
  SoftDomain(std::shared_ptr<SoftContext> context, uint32_t id) : context_(std::move(context)), id_(id) {}

  std::shared_ptr<MemoryRegion> register_memory(std::byte* addr, size_t length, uint32_t access,
                                                bool pin) override;
  std::shared_ptr<MemoryWindow> bind_window(const std::shared_ptr<MemoryRegion>& region, uint32_t access,
                                            const std::shared_ptr<QueuePair>& qp,
                                            const MemoryGroup* group) override;
  std::shared_ptr<QueuePair> create_qp(const QpOptions& options) override;
  std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t max_recv, uint32_t max_sge) override;
  void close() override {}

  uint32_t id() const { return id_; }
  SoftContext& context() const { return *context_; }

 private:
  const std::shared_ptr<SoftContext> context_;
  const uint32_t id_;
};

// The limits of every software device; the wire adds its name, port and capabilities.
DeviceAttributes soft_device_attributes();

// Anonymous memory, for wires that need no special kind.
std::shared_ptr<Memory> anonymous_memory(size_t bytes, bool huge_pages, int numa_node);

}  // namespace verbena::soft
