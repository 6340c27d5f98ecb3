#include "providers/ibv/device/library.h"

#include <dlfcn.h>

#include <cstddef>

#include "util/error.h"

namespace verbena::ibv {
namespace {

constexpr const char* kInstall = "; install rdma-core (Debian: libibverbs1 ibverbs-providers librdmacm1)";

// Never unloaded: its threads and handles may live until the process ends.
struct Loaded {
  Library library;
  std::string missing;

  Loaded() {
    void* verbs = open("libibverbs.so.1");
    void* cm = open("librdmacm.so.1");
    if (!missing.empty()) return;
#define VERBENA_LOAD_VERBS(member, symbol) load(verbs, #symbol, library.member);
#define VERBENA_LOAD_CM(member, symbol) load(cm, #symbol, library.member);
    VERBENA_IBVERBS_SYMBOLS(VERBENA_LOAD_VERBS)
    VERBENA_RDMACM_SYMBOLS(VERBENA_LOAD_CM)
#undef VERBENA_LOAD_VERBS
#undef VERBENA_LOAD_CM
    find(verbs, "_ibv_query_gid_table", library.query_gid_table);
  }

 private:
  void* open(const char* name) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle && missing.empty()) {
      const char* why = dlerror();
      missing = std::string(name) + " cannot be loaded (" + (why ? why : "no reason given") + ")" + kInstall;
    }
    return handle;
  }

  template <typename Function>
  static void find(void* handle, const char* symbol, Function& out) {
    out = reinterpret_cast<Function>(dlsym(handle, symbol));
  }

  template <typename Function>
  void load(void* handle, const char* symbol, Function& out) {
    find(handle, symbol, out);
    if (!out && missing.empty())
      missing = std::string("the installed rdma-core is too old: it lacks ") + symbol + kInstall;
  }
};

const Loaded& loaded() {
  static const Loaded& once = *new Loaded;
  return once;
}

}  // namespace

const std::string& missing_library() { return loaded().missing; }

const Library& library() {
  const Loaded& all = loaded();
  if (!all.missing.empty()) throw Error("provider_missing", "load libibverbs", all.missing);
  return all.library;
}

int Library::query_port(ibv_context* context, uint8_t port, ibv_port_attr& out) const {
  out = {};
  if (verbs_context* extended = verbs_get_ctx_op(context, query_port))
    return extended->query_port(context, port, &out, sizeof out);
  return query_port_compatible(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out));
}

}  // namespace verbena::ibv
