// Options of an iWARP context: checksums, encryption, timeouts and limits. The default of each option is an
// environment variable; options.cc has the table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "net/tls.h"
#include "util/environment.h"
#include "verbs/provider.h"

namespace verbena::iwarp {

struct Options {
  std::optional<bool> crc;  // empty: on, except with TLS, whose records are authenticated
  bool markers = false;  // request markers; for tests of foreign peers, because they cost a copy at both ends
  bool acknowledged = true;  // acknowledged mode between Verbena ends; off: only what the RFCs define
  uint8_t mpa_revision = 2;  // of our own requests
  std::optional<net::TlsOptions> tls;
  uint32_t handshake_timeout_ms = 5'000;   // until a peer's request is complete
  uint32_t stall_timeout_ms = 30'000;      // until a segment that has begun is complete
  uint32_t dead_peer_timeout_ms = 60'000;  // for a peer that answers nothing, not even TCP keep-alives
  uint32_t max_handshakes = 1'024;         // incomplete handshakes of peers at the same time

  bool wants_crc() const { return crc.value_or(!tls); }  // it is used anyway if the peer requests it
};

Options options_from_environment(const Environment& environment = Environment("VERBENA_IWARP_"));

// Opens the device on this interface; empty: the first one. Throws invalid_argument, no_device, tls_file and
// other TLS errors.
std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::iwarp
