#include "providers/ibv/domain.h"

#include <cerrno>

#include "providers/ibv/queue_pair.h"
#include "providers/ibv/shared_receive_queue.h"
#include "providers/ibv/window.h"
#include "providers/soft/regions.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

ibv_pd* alloc_pd(ibv_context* context) {
  ibv_pd* pd = library().alloc_pd(context);
  if (!pd)
    throw Error("limit_exceeded", "allocate protection domain", "the device cannot create another domain",
                errno);
  return pd;
}

[[noreturn]] void refuse_registration(size_t length, int failure) {
  const std::string bytes = std::to_string(length) + " bytes";
  switch (failure) {
    case ENOMEM:
      throw Error("memlock", "register memory", "the kernel refuses to pin " + bytes, failure);
    case EFAULT:
      throw Error("invalid_argument", "register memory", "not all " + bytes + " are mapped as wanted",
                  failure);
    default:
      throw Error("invalid_argument", "register memory", "the device refused " + bytes, failure);
  }
}

// For devices without windows, or with none left: a registration of its own. The key ends with it, but is
// valid on every queue pair of the domain.
class RegisteredWindow final : public MemoryWindow {
 public:
  explicit RegisteredWindow(std::shared_ptr<MemoryRegion> region) : region_(std::move(region)) {}
  ~RegisteredWindow() override { RegisteredWindow::invalidate(); }
  uint32_t rkey() const override { return region_->rkey(); }
  void invalidate() override { region_->close(); }

 private:
  const std::shared_ptr<MemoryRegion> region_;
};

}  // namespace

IbvDomain::IbvDomain(std::shared_ptr<IbvContext> context)
    : context_(std::move(context)), use_(context_->use_for_domain()), pd_(alloc_pd(context_->get())) {}

IbvDomain::~IbvDomain() {
  if (pd_) library().dealloc_pd(pd_);
}

void IbvDomain::on_removal() {
  if (!pd_ || library().dealloc_pd(pd_) != 0) return;
  pd_ = nullptr;
  use_.end();
}

// `pin` changes nothing: a device pins all registered memory.
std::shared_ptr<MemoryRegion> IbvDomain::register_memory(std::byte* addr, size_t length, uint32_t access,
                                                         bool) {
  soft::check_access_flags(access);
  if (length > context_->limits().max_mr_bytes)
    throw Error("limit_exceeded", "register memory", "the region is longer than the device allows");
  static_assert(access::local_write == IBV_ACCESS_LOCAL_WRITE &&
                access::remote_write == IBV_ACCESS_REMOTE_WRITE &&
                access::remote_read == IBV_ACCESS_REMOTE_READ &&
                access::remote_atomic == IBV_ACCESS_REMOTE_ATOMIC && access::window == IBV_ACCESS_MW_BIND);
  const DeviceUse use = context_->use("register memory");
  const uint32_t flags = context_->has_windows() ? access : access & ~access::window;
  ibv_mr* mr = library().reg_mr(pd_, addr, length, static_cast<int>(flags));
  if (!mr) refuse_registration(length, errno);
  auto region = std::make_shared<IbvRegion>(shared_from_this(), mr, access);
  context_->track(RemovalRank::region, region);
  return region;
}

std::shared_ptr<MemoryWindow> IbvDomain::bind_window(const std::shared_ptr<MemoryRegion>& region,
                                                     uint32_t access, const std::shared_ptr<QueuePair>& qp,
                                                     const MemoryGroup*) {
  auto* whole = dynamic_cast<IbvRegion*>(region.get());
  const auto user = std::dynamic_pointer_cast<IbvQueuePair>(qp);
  if (!whole || &whole->domain() != this || !user || &user->domain() != this)
    throw Error("invalid_argument", "bind a window", "region and queue pair must belong to this domain");
  soft::check_window(whole->access(), access, user->set_state());
  std::shared_ptr<MemoryWindow> window = IbvWindow::bind(shared_from_this(), *whole, access, user);
  if (!window) {
    const bool writes = access & (access::remote_write | access::remote_atomic);
    window = std::make_shared<RegisteredWindow>(
        register_memory(whole->addr(), whole->length(), access | (writes ? access::local_write : 0), false));
  }
  return soft::bound(std::move(window), whole->windows(), user->windows());
}

std::shared_ptr<QueuePair> IbvDomain::create_qp(const QpOptions& options) {
  auto qp = std::make_shared<IbvQueuePair>(shared_from_this(), options);
  qp->start();
  context_->track(RemovalRank::queue_pair, qp);
  return qp;
}

std::shared_ptr<SharedReceiveQueue> IbvDomain::create_srq(uint32_t max_recv, uint32_t max_sge) {
  auto srq = std::make_shared<IbvSharedReceiveQueue>(shared_from_this(), max_recv, max_sge);
  context_->track(RemovalRank::queue, srq);
  return srq;
}

}  // namespace verbena::ibv
