#include "providers/quic/library.h"

#include <dlfcn.h>

#include "util/error.h"

namespace verbena::quic {
namespace {

// The library's structures change with its minor version, so the one that the headers were of is asked for.
constexpr const char* kQuic = "libngtcp2.so.9";
constexpr const char* kCrypto = "libngtcp2_crypto_gnutls.so.2";
constexpr const char* kGnutls = "libgnutls.so.30";

// Never unloaded: connections may live until the process ends.
struct Loaded {
  Library library;
  std::string missing;

  Loaded() {
    void* gnutls = open(kGnutls, "libgnutls30");
    void* quic = open(kQuic, "libngtcp2-9");
    void* crypto = open(kCrypto, "libngtcp2-crypto-gnutls2");
    if (!missing.empty()) return;
#define VERBENA_LOAD(symbol) load(quic, kQuic, #symbol, library.symbol);
    VERBENA_QUIC_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
#define VERBENA_LOAD(symbol) load(crypto, kCrypto, #symbol, library.symbol);
    VERBENA_QUIC_CRYPTO_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
#define VERBENA_LOAD(symbol) load(gnutls, kGnutls, #symbol, library.symbol);
    VERBENA_GNUTLS_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
  }

 private:
  void* open(const char* name, const char* package) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle && missing.empty()) {
      const char* why = dlerror();
      missing =
          std::string(name) + " cannot be loaded (" + (why ? why : "no reason given") +
          "); install ngtcp2 0.12, which this build is for, with its helper for GnuTLS (Debian: " + package +
          ")";
    }
    return handle;
  }

  template <typename Function>
  void load(void* handle, const char* name, const char* symbol, Function& out) {
    out = reinterpret_cast<Function>(dlsym(handle, symbol));
    if (!out && missing.empty()) missing = std::string(name) + " lacks " + symbol;
  }
};

const Loaded& loaded() {
  static const Loaded& once = *new Loaded;
  return once;
}

}  // namespace

const std::string& missing_library() { return loaded().missing; }

const Library& library() {
  if (!missing_library().empty()) throw Error("provider_missing", "open device", missing_library());
  return loaded().library;
}

}  // namespace verbena::quic
