// What an iWARP context can be told when it is opened: checksums, encryption, and how much patience it has
// with peers. Every option has an environment variable, which is its default; options.cc has the table.
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
  std::optional<bool> crc;   // empty: on, but for TLS, whose records are authenticated
  bool markers = false;      // ask for them: for tests of peers, as they cost a copy at both ends
  bool acknowledged = true;  // between Verbena ends; off: the RFCs' semantics and nothing beyond them
  uint8_t mpa_revision = 2;  // when we call
  std::optional<net::TlsOptions> tls;
  uint32_t handshake_timeout_ms = 5'000;   // for a caller to say what it wants
  uint32_t stall_timeout_ms = 30'000;      // for a segment that has begun to be complete
  uint32_t dead_peer_timeout_ms = 60'000;  // for a peer that answers nothing, not even TCP's own questions
  uint32_t max_handshakes = 1'024;         // callers at once that have not said what they want

  bool wants_crc() const { return crc.value_or(!tls); }  // a peer that asks for it gets it all the same
};

Options options_from_environment(const Environment& environment = Environment("VERBENA_IWARP_"));

// The device on this interface; empty: the first. Throws invalid_argument, no_device, tls_file and the like.
std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::iwarp
