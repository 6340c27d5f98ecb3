#include "providers/ibv/device/library.h"

#include <cstddef>

#include "util/dynamic_library.h"

namespace verbena::ibv {
namespace {

constexpr const char* kInstall = "install rdma-core (Debian: libibverbs1 ibverbs-providers librdmacm1)";

struct Functions : DynamicLoader {
  Library library;

  Functions() {
    void* verbs = open("libibverbs.so.1", kInstall);
    void* cm = open("librdmacm.so.1", kInstall);
    if (!missing().empty()) return;
    constexpr const char* kOwner = "the installed rdma-core is too old: it";
#define VERBENA_LOAD_VERBS(member, symbol) load(verbs, #symbol, library.member, kOwner);
#define VERBENA_LOAD_CM(member, symbol) load(cm, #symbol, library.member, kOwner);
    VERBENA_IBVERBS_SYMBOLS(VERBENA_LOAD_VERBS)
    VERBENA_RDMACM_SYMBOLS(VERBENA_LOAD_CM)
#undef VERBENA_LOAD_VERBS
#undef VERBENA_LOAD_CM
    find(verbs, "_ibv_query_gid_table", library.query_gid_table);
    find(verbs, "ibv_fork_init", library.fork_init);
    // Before any other call. On kernels that do not copy pinned pages at a fork (before 5.12), registered
    // memory would otherwise move away from under the device when the process writes to it.
    if (library.fork_init) library.fork_init();
  }
};

}  // namespace

const std::string& missing_library() { return loaded<Functions>().missing(); }

const Library& library() {
  loaded<Functions>().require("load libibverbs");
  return loaded<Functions>().library;
}

int Library::query_port(ibv_context* context, uint8_t port, ibv_port_attr& out) const {
  out = {};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // the macro of libibverbs is a statement expression
  if (verbs_context* extended = verbs_get_ctx_op(context, query_port))
    return extended->query_port(context, port, &out, sizeof out);
#pragma GCC diagnostic pop
  return query_port_compatible(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out));
}

}  // namespace verbena::ibv
