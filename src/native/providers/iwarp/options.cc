#include "providers/iwarp/options.h"

#include <cstring>

namespace verbena::iwarp {
Options options_from_environment(const Environment& environment) {
  Options options;
  if (environment.look_up("CRC")) environment.read("CRC", options.crc.emplace());
  environment.read("MARKERS", options.markers);
  environment.read("ACKNOWLEDGED", options.acknowledged);
  if (const char* revision = environment.look_up("MPA_REVISION")) {
    if (std::strcmp(revision, "1") != 0 && std::strcmp(revision, "2") != 0) {
      environment.refuse("MPA_REVISION", revision, "1 or 2");
    }
    options.mpa_revision = static_cast<uint8_t>(*revision - '0');
  }
  environment.read_seconds("HANDSHAKE_TIMEOUT_S", options.handshake_timeout_ms);
  environment.read_seconds("STALL_TIMEOUT_S", options.stall_timeout_ms);
  environment.read_seconds("DEAD_PEER_TIMEOUT_S", options.dead_peer_timeout_ms);
  environment.read_count("MAX_HANDSHAKES", options.max_handshakes);
  net::TlsOptions tls;
  environment.read("TLS_CERTIFICATE", tls.certificate);
  environment.read("TLS_KEY", tls.key);
  environment.read("TLS_AUTHORITY", tls.authority);
  environment.read("TLS_REQUIRE_PEER_CERTIFICATE", tls.require_peer_certificate);
  if (!tls.certificate.empty() || !tls.key.empty() || !tls.authority.empty()) options.tls = tls;
  return options;
}

}  // namespace verbena::iwarp
