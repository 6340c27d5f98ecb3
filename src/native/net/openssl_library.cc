#include "net/openssl_library.h"

#include <dlfcn.h>

#include <string>

#include "util/error.h"

namespace verbena::net {
namespace {

// Never unloaded: sessions may live until the process ends.
struct Loaded {
  OpenSsl library;
  std::string missing;

  Loaded() {
    void* handle = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = dlerror();
      missing = std::string("libssl.so.3 cannot be loaded (") + (why ? why : "no reason given") +
                "); install OpenSSL 3 (Debian: libssl3)";
      return;
    }
#define VERBENA_LOAD(symbol) load(handle, #symbol, library.symbol);
    VERBENA_OPENSSL_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
  }

 private:
  template <typename Function>
  void load(void* handle, const char* symbol, Function& out) {
    out = reinterpret_cast<Function>(dlsym(handle, symbol));  // libcrypto's too: libssl depends on it
    if (!out && missing.empty()) missing = std::string("libssl.so.3 lacks ") + symbol;
  }
};

}  // namespace

const OpenSsl& openssl() {
  static const Loaded& once = *new Loaded;
  if (!once.missing.empty()) throw Error("tls_missing", "open device", once.missing);
  return once.library;
}

}  // namespace verbena::net
