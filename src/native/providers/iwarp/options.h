// What an iWARP context can be told when it is opened: checksums, encryption, and how much patience it has
// with peers. Every option has an environment variable, which is its default; options.cc has the table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "verbs/provider.h"

namespace verbena::iwarp {

// Files in PEM form. With them every connection of the context is TLS 1.3, and no other is taken.
struct TlsOptions {
  std::string certificate;  // ours, with what leads from it to the authority
  std::string key;
  std::string authority;                 // whom we believe
  bool require_peer_certificate = true;  // of those who call us; whom we call always shows one
  // Both ends must name it (ALPN), so that nothing else is taken for it. Empty, as the store's clients want
  // it: none is named, and without an authority nobody is asked for a certificate.
  std::string protocol = "verbena-iwarp/1";
};

struct Options {
  std::optional<bool> crc;   // empty: on, but for TLS, whose records are authenticated
  bool markers = false;      // ask for them: for tests of peers, as they cost a copy at both ends
  bool acknowledged = true;  // between Verbena ends; off: the RFCs' semantics and nothing beyond them
  uint8_t mpa_revision = 2;  // when we call
  std::optional<TlsOptions> tls;
  uint32_t handshake_timeout_ms = 5'000;   // for a caller to say what it wants
  uint32_t stall_timeout_ms = 30'000;      // for a segment that has begun to be complete
  uint32_t dead_peer_timeout_ms = 60'000;  // for a peer that answers nothing, not even TCP's own questions
  uint32_t max_handshakes = 1'024;         // callers at once that have not said what they want

  bool wants_crc() const { return crc.value_or(!tls); }  // a peer that asks for it gets it all the same
};

// The variables of one provider. Throws invalid_argument for one that makes no sense; what is not set stays.
class Environment {
 public:
  explicit Environment(std::string prefix) : prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  const char* look_up(const std::string& name) const;  // nullptr: not set, or empty
  void read(const std::string& name, bool& out) const;
  void read(const std::string& name, std::string& out) const;
  void read_seconds(const std::string& name, uint32_t& out_ms) const;
  void read_count(const std::string& name, uint32_t& out) const;

 private:
  const std::string prefix_;
};

Options options_from_environment(const Environment& environment = Environment("VERBENA_IWARP_"));

// The device on this interface; empty: the first. Throws invalid_argument, no_device, tls_file and the like.
std::shared_ptr<Context> open(const std::string& device, const Options& options);

}  // namespace verbena::iwarp
