#include "providers/soft/context.h"

#include <sys/mman.h>

#include <cerrno>

#include "util/error.h"
#include "util/processor/numa.h"
#include "util/random.h"

namespace verbena::soft {
namespace {

constexpr uint64_t kMaxRegionBytes = 1ull << 46;
constexpr uint32_t kMaxCompletions = 1u << 22;

class AnonymousMemory final : public Memory {
 public:
  AnonymousMemory(size_t bytes, bool huge_pages, int numa_node) : size_(bytes) {
    constexpr size_t kHugePage = 2u << 20;
    mapped_ = huge_pages ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge_pages ? MAP_HUGETLB : 0);
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(huge_pages ? ErrorCode("huge_pages") : "limit_exceeded", "allocate memory",
                  "cannot map " + std::to_string(mapped_) + " bytes", errno);
    }
    data_ = static_cast<std::byte*>(memory);
    if (numa_node >= 0)
      prefer_node(data_, mapped_, numa_node);  // a preference: memory on another node is better than none
  }
  ~AnonymousMemory() override { munmap(data_, mapped_); }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  std::byte* data_;
  size_t size_, mapped_;
};

class SoftWindow final : public MemoryWindow {
 public:
  SoftWindow(std::shared_ptr<SoftContext> context, uint32_t scope, uint32_t key, uint32_t arena)
      : context_(std::move(context)), scope_(scope), key_(key), arena_(arena) {}
  ~SoftWindow() override { SoftWindow::invalidate(); }
  uint32_t rkey() const override { return key_; }
  void invalidate() override {
    if (invalid_.exchange(true)) return;
    context_->regions().remove(key_);
    context_->unshare(scope_, arena_);
  }

 private:
  const std::shared_ptr<SoftContext> context_;
  const uint32_t scope_, key_, arena_;
  std::atomic<bool> invalid_{false};
};

}  // namespace

std::shared_ptr<ProtectionDomain> SoftContext::alloc_pd() {
  return std::make_shared<SoftDomain>(shared_from_this(), next_pd_.fetch_add(1));
}

std::shared_ptr<CompletionQueue> SoftContext::create_cq(uint32_t depth) {
  if (depth == 0 || depth > kMaxCompletions) {
    throw Error("limit_exceeded", "create completion queue",
                "the depth must be from 1 to " + std::to_string(kMaxCompletions));
  }
  auto cq = make_cq(depth);
  cq->set_owner(*this);
  return cq;
}

ArenaLocation SoftContext::locate(const std::byte*, size_t, uint32_t, const MemoryGroup*) const { return {}; }
void SoftContext::share(uint32_t, uint32_t) {}
void SoftContext::unshare(uint32_t, uint32_t) {}

void SoftContext::quiesce() {
  // All local copying happens under a QP's lock, so taking each lock once is a grace period.
  for_each_qp([](SoftQueuePair& qp) { qp.wait_for_lock(); });
}

std::shared_ptr<SoftQueuePair> SoftContext::create_qp(std::shared_ptr<SoftDomain> domain,
                                                      const QpOptions& options) {
  for (;;) {
    const uint32_t number = random_value<uint32_t>() & 0xffffff;
    if (number < 2 || with_qp(number, [](SoftQueuePair&) {})) continue;  // 0 and 1 are special QPs in verbs
    auto qp = make_qp(std::move(domain), options, number);
    qp->start();
    const std::lock_guard lock(qps_mutex_);
    qps_[number] = qp.get();
    return qp;
  }
}

void SoftContext::remove_qp(SoftQueuePair& qp) {
  const std::lock_guard lock(qps_mutex_);
  qps_.erase(qp.number());
}

std::shared_ptr<MemoryRegion> SoftDomain::register_memory(std::byte* addr, size_t length, uint32_t access,
                                                          bool pin) {
  check_access_flags(access);
  if (length > kMaxRegionBytes) throw Error("limit_exceeded", "register memory", "the region is too long");
  if (pin) pin_memory(addr, length);
  const ArenaLocation at = context_->locate(addr, length, access, nullptr);
  uint32_t key = 0;
  try {
    key = context_->regions().insert(id_, reinterpret_cast<uint64_t>(addr), length, access, at.arena,
                                     at.offset);
  } catch (const Error&) {
    if (pin) unpin_memory(addr, length);
    throw;
  }
  const bool is_local_only = (access & access::remote) == 0;
  if (!is_local_only) context_->share(id_, at.arena);
  // No peer has to be waited for when peers may not use the region.
  const auto quiesce = [context = context_.get(), is_local_only, scope = id_,
                        arena = at.arena](bool has_peers) {
    if (!is_local_only) context->unshare(scope, arena);
    return has_peers ? context->quiesce() : context->SoftContext::quiesce();
  };
  return std::make_shared<SoftRegion>(context_->regions(), shared_from_this(), key, addr, length, access, pin,
                                      quiesce);
}

std::shared_ptr<MemoryWindow> SoftDomain::bind_window(const std::shared_ptr<MemoryRegion>& region,
                                                      uint32_t access, const std::shared_ptr<QueuePair>& qp,
                                                      const MemoryGroup* group) {
  auto* whole = dynamic_cast<SoftRegion*>(region.get());
  auto* user = dynamic_cast<SoftQueuePair*>(qp.get());
  if (!whole || !whole->is_of(this) || !user || user->domain() != this) {
    throw Error("invalid_argument", "bind a window", "region and queue pair must belong to this domain");
  }
  check_window(whole->access(), access, user->state());
  const ArenaLocation at = context_->locate(whole->addr(), whole->length(), access, group);
  const uint32_t scope = window_scope(user->number());
  const uint32_t key = context_->regions().insert(scope, reinterpret_cast<uint64_t>(whole->addr()),
                                                  whole->length(), access, at.arena, at.offset);
  context_->share(scope, at.arena);
  return bound(std::make_shared<SoftWindow>(context_, scope, key, at.arena), whole->windows(),
               user->windows());
}

std::shared_ptr<QueuePair> SoftDomain::create_qp(const QpOptions& options) {
  if (!options.send_cq || !options.recv_cq) {
    throw Error("invalid_argument", "create queue pair",
                "both a send and a receive completion queue are required");
  }
  return context_->create_qp(shared_from_this(), options);
}

std::shared_ptr<SharedReceiveQueue> SoftDomain::create_srq(uint32_t max_recv, uint32_t max_sge) {
  if (max_recv == 0)
    throw Error("invalid_argument", "create shared receive queue", "max_recv must be at least 1");
  return std::make_shared<SoftSharedReceiveQueue>(shared_from_this(), id_, max_recv, max_sge);
}

DeviceAttributes soft_device_attributes() {
  DeviceAttributes device;
  device.vendor = "Verbena";
  device.max_mr_bytes = kMaxRegionBytes;
  device.max_qp = 1u << 16;
  device.max_qp_wr = kMaxDepth;
  device.max_sge = kMaxSges;
  device.max_cq = 1u << 16;
  device.max_cqe = kMaxCompletions;
  device.max_mr = kMaxRegions;
  device.max_pd = 1u << 16;
  device.max_srq = 1u << 16;
  device.max_srq_wr = kMaxDepth;
  device.max_inline = kMaxInline;
  device.max_rd_atomic = 128;
  device.max_message_bytes = kMaxMessage;
  device.software = true;
  return device;
}

std::shared_ptr<Memory> anonymous_memory(size_t bytes, bool huge_pages, int numa_node) {
  return std::make_shared<AnonymousMemory>(bytes, huge_pages, numa_node);
}

}  // namespace verbena::soft
