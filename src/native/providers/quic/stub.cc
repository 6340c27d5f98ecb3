// The quic provider of a build without the headers of ngtcp2 and GnuTLS, or with those of another version,
// whose structures differ. Reports why it is unavailable.
#if __has_include(<ngtcp2/version.h>)
#include <ngtcp2/version.h>
#endif

#include "providers/quic/options.h"
#include "providers/quic/provider.h"
#include "verbs/missing_provider.h"

namespace verbena::quic {
namespace {

#if defined(NGTCP2_VERSION_NUM) && (NGTCP2_VERSION_NUM < 0x000c00 || NGTCP2_VERSION_NUM >= 0x000d00)
constexpr const char* kReason = "this build found the headers of ngtcp2 " NGTCP2_VERSION
                                ", and the wire is written for 0.12, whose structures and names differ; "
                                "Debian 12 and Ubuntu 24.04 have "
                                "that one";
#else
constexpr const char* kReason =
    "this build was made without the headers of ngtcp2 0.12 and GnuTLS; install them (Debian: libngtcp2-dev "
    "libngtcp2-crypto-gnutls-dev libgnutls28-dev) and build again";
#endif

}  // namespace

std::shared_ptr<Context> open(const std::string&, const Options&) { MissingProvider::refuse(kReason); }

std::shared_ptr<Provider> make_provider() { return std::make_shared<MissingProvider>("quic", kReason); }

}  // namespace verbena::quic
