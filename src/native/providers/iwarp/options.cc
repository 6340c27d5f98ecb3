#include "providers/iwarp/options.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "util/error.h"

namespace verbena::iwarp {
namespace {

[[noreturn]] void refuse(const std::string& variable, const char* value, const char* wanted) {
  throw Error("invalid_argument", "open device", variable + " is '" + value + "'; it must be " + wanted);
}

double number(const std::string& variable, const char* value, const char* wanted) {
  char* end = nullptr;
  const double result = std::strtod(value, &end);
  if (*end != '\0' || !std::isfinite(result) || result <= 0 || result > 1e9) refuse(variable, value, wanted);
  return result;
}

}  // namespace

const char* Environment::look_up(const std::string& name) const {
  const char* value = std::getenv((prefix_ + name).c_str());
  return value && *value ? value : nullptr;
}

void Environment::read(const std::string& name, bool& out) const {
  const char* value = look_up(name);
  if (!value) return;
  // The words of the configuration.
  const auto is_one_of = [value](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [value](const char* word) { return strcasecmp(value, word) == 0; });
  };
  out = is_one_of({"1", "true", "yes", "on"});
  if (!out && !is_one_of({"0", "false", "no", "off"})) refuse(prefix_ + name, value, "on or off");
}

void Environment::read(const std::string& name, std::string& out) const {
  if (const char* value = look_up(name)) out = value;
}

void Environment::read_seconds(const std::string& name, uint32_t& out_ms) const {
  if (const char* value = look_up(name)) {
    const double seconds = number(prefix_ + name, value, "a number of seconds");
    if (seconds > 1e6) refuse(prefix_ + name, value, "a number of seconds");
    out_ms = static_cast<uint32_t>(std::ceil(seconds * 1000));
  }
}

void Environment::read_count(const std::string& name, uint32_t& out) const {
  if (const char* value = look_up(name)) {
    out = static_cast<uint32_t>(std::ceil(number(prefix_ + name, value, "a number from 1 on")));
  }
}

Options options_from_environment(const Environment& environment) {
  Options options;
  if (environment.look_up("CRC")) environment.read("CRC", options.crc.emplace());
  environment.read("MARKERS", options.markers);
  environment.read("ACKNOWLEDGED", options.acknowledged);
  if (const char* revision = environment.look_up("MPA_REVISION")) {
    if (std::strcmp(revision, "1") != 0 && std::strcmp(revision, "2") != 0) {
      refuse(environment.prefix() + "MPA_REVISION", revision, "1 or 2");
    }
    options.mpa_revision = static_cast<uint8_t>(*revision - '0');
  }
  environment.read_seconds("HANDSHAKE_TIMEOUT_S", options.handshake_timeout_ms);
  environment.read_seconds("STALL_TIMEOUT_S", options.stall_timeout_ms);
  environment.read_seconds("DEAD_PEER_TIMEOUT_S", options.dead_peer_timeout_ms);
  environment.read_count("MAX_HANDSHAKES", options.max_handshakes);
  TlsOptions tls;
  environment.read("TLS_CERTIFICATE", tls.certificate);
  environment.read("TLS_KEY", tls.key);
  environment.read("TLS_AUTHORITY", tls.authority);
  environment.read("TLS_REQUIRE_PEER_CERTIFICATE", tls.require_peer_certificate);
  if (!tls.certificate.empty() || !tls.key.empty() || !tls.authority.empty()) options.tls = tls;
  return options;
}

}  // namespace verbena::iwarp
