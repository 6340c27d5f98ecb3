#include "providers/quic/library.h"

#include "util/dynamic_library.h"

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

struct Functions : DynamicLoader {
  Library library;

  Functions() {
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

}  // namespace

const std::string& missing_library() { return loaded<Functions>().missing(); }

const Library& library() {
  loaded<Functions>().require("open device");
  return loaded<Functions>().library;
}

}  // namespace verbena::quic
