#include "providers/quic/library.h"

#include "util/dynamic_library.h"
#include "util/error.h"

namespace verbena::quic {
namespace {

// The library's structures change with its minor version: this build needs the version of its headers.
constexpr const char* kQuic = "libngtcp2.so.9";
constexpr const char* kCrypto = "libngtcp2_crypto_gnutls.so.2";
constexpr const char* kGnutls = "libgnutls.so.30";

std::string remedy(const char* package) {
  return std::string("install ngtcp2 0.12, which this build is for, with its GnuTLS helper (Debian: ") +
         package + ")";
}

struct Loaded : DynamicLoader {
  Library library;

  Loaded() {
    void* gnutls = open(kGnutls, remedy("libgnutls30"));
    void* quic = open(kQuic, remedy("libngtcp2-9"));
    void* crypto = open(kCrypto, remedy("libngtcp2-crypto-gnutls2"));
    if (!missing().empty()) return;
#define VERBENA_LOAD(symbol) load(quic, #symbol, library.symbol, kQuic);
    VERBENA_QUIC_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
#define VERBENA_LOAD(symbol) load(crypto, #symbol, library.symbol, kCrypto);
    VERBENA_QUIC_CRYPTO_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
#define VERBENA_LOAD(symbol) load(gnutls, #symbol, library.symbol, kGnutls);
    VERBENA_GNUTLS_SYMBOLS(VERBENA_LOAD)
#undef VERBENA_LOAD
  }
};

const Loaded& loaded() {
  static const Loaded& once = *new Loaded;
  return once;
}

}  // namespace

const std::string& missing_library() { return loaded().missing(); }

const Library& library() {
  if (!missing_library().empty()) throw Error("provider_missing", "open device", missing_library());
  return loaded().library;
}

}  // namespace verbena::quic
