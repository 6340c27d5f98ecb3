// Replaces tls_openssl.cc in builds without OpenSSL's headers.
#include "net/tls.h"
#include "util/error.h"

namespace verbena::net {

std::unique_ptr<TlsContext> make_tls_context(const TlsOptions&) {
  throw Error("tls_missing", "open device",
              "this build has no TLS: OpenSSL's headers were missing (Debian: libssl-dev)");
}

}  // namespace verbena::net
