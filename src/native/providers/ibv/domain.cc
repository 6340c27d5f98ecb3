#include "providers/ibv/domain.h"

#include <cerrno>

#include "providers/ibv/queue_pair.h"
#include "providers/ibv/shared_receive_queue.h"
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

}  // namespace

IbvDomain::IbvDomain(std::shared_ptr<IbvContext> context)
    : context_(std::move(context)), pd_(alloc_pd(context_->get())) {}

IbvDomain::~IbvDomain() { library().dealloc_pd(pd_); }

// `pin` changes nothing: a device pins all registered memory.
std::shared_ptr<MemoryRegion> IbvDomain::register_memory(std::byte* addr, size_t length, uint32_t access,
                                                         bool) {
  soft::check_access_flags(access);
  if (length > context_->limits().max_mr_bytes)
    throw Error("limit_exceeded", "register memory", "the region is longer than the device allows");
  static_assert(
      access::local_write == IBV_ACCESS_LOCAL_WRITE && access::remote_write == IBV_ACCESS_REMOTE_WRITE &&
      access::remote_read == IBV_ACCESS_REMOTE_READ && access::remote_atomic == IBV_ACCESS_REMOTE_ATOMIC);
  ibv_mr* mr = library().reg_mr(pd_, addr, length, static_cast<int>(access));
  if (!mr) refuse_registration(length, errno);
  return std::make_shared<IbvRegion>(shared_from_this(), mr);
}

std::shared_ptr<QueuePair> IbvDomain::create_qp(const QpOptions& options) {
  auto qp = std::make_shared<IbvQueuePair>(shared_from_this(), options);
  qp->start();
  return qp;
}

std::shared_ptr<SharedReceiveQueue> IbvDomain::create_srq(uint32_t max_recv, uint32_t max_sge) {
  return std::make_shared<IbvSharedReceiveQueue>(shared_from_this(), max_recv, max_sge);
}

}  // namespace verbena::ibv
