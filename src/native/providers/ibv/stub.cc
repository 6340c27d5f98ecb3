// The ibv provider of a build without the headers of libibverbs and librdmacm. Reports why it is unavailable.
#include "providers/ibv/options.h"
#include "providers/ibv/provider.h"
#include "verbs/missing_provider.h"

namespace verbena::ibv {
namespace {

constexpr const char* kReason =
    "this build was made without the headers infiniband/verbs.h and rdma/rdma_cma.h; install them "
    "(Debian: libibverbs-dev librdmacm-dev) and build again";

}  // namespace

std::shared_ptr<Context> open(const std::string&, const Options&) { MissingProvider::refuse(kReason); }

std::shared_ptr<Provider> make_provider() { return std::make_shared<MissingProvider>("ibv", kReason); }

}  // namespace verbena::ibv
