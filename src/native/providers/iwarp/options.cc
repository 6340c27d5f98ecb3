#include "providers/iwarp/options.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "util/error.h"

namespace verbena::iwarp {
namespace {

[[noreturn]] void refuse(const char* variable, const char* value, const char* wanted) {
  throw Error("invalid_argument", "open device",
              std::string(variable) + " is '" + value + "'; it must be " + wanted);
}

const char* look_up(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? value : nullptr;
}

void read(const char* variable, bool& out) {
  const char* value = look_up(variable);
  if (!value) return;
  // The words of the configuration.
  const auto is_one_of = [value](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [value](const char* word) { return strcasecmp(value, word) == 0; });
  };
  out = is_one_of({"1", "true", "yes", "on"});
  if (!out && !is_one_of({"0", "false", "no", "off"})) refuse(variable, value, "on or off");
}

double number(const char* variable, const char* value, const char* wanted) {
  char* end = nullptr;
  const double result = std::strtod(value, &end);
  if (*end != '\0' || !std::isfinite(result) || result <= 0 || result > 1e6) refuse(variable, value, wanted);
  return result;
}

void read_seconds(const char* variable, uint32_t& out_ms) {
  if (const char* value = look_up(variable)) {
    out_ms = static_cast<uint32_t>(std::ceil(number(variable, value, "a number of seconds") * 1000));
  }
}

void read_count(const char* variable, uint32_t& out) {
  if (const char* value = look_up(variable)) {
    out = static_cast<uint32_t>(std::ceil(number(variable, value, "a number from 1 on")));
  }
}

}  // namespace

Options options_from_environment() {
  Options options;
  if (look_up("VERBENA_IWARP_CRC")) read("VERBENA_IWARP_CRC", options.crc.emplace());
  read("VERBENA_IWARP_MARKERS", options.markers);
  read("VERBENA_IWARP_ACKNOWLEDGED", options.acknowledged);
  if (const char* revision = look_up("VERBENA_IWARP_MPA_REVISION")) {
    if (std::strcmp(revision, "1") != 0 && std::strcmp(revision, "2") != 0) {
      refuse("VERBENA_IWARP_MPA_REVISION", revision, "1 or 2");
    }
    options.mpa_revision = static_cast<uint8_t>(*revision - '0');
  }
  read_seconds("VERBENA_IWARP_HANDSHAKE_TIMEOUT_S", options.handshake_timeout_ms);
  read_seconds("VERBENA_IWARP_STALL_TIMEOUT_S", options.stall_timeout_ms);
  read_seconds("VERBENA_IWARP_DEAD_PEER_TIMEOUT_S", options.dead_peer_timeout_ms);
  read_count("VERBENA_IWARP_MAX_HANDSHAKES", options.max_handshakes);
  TlsOptions tls;
  const auto file = [](const char* variable) {
    const char* value = look_up(variable);
    return std::string(value ? value : "");
  };
  tls.certificate = file("VERBENA_IWARP_TLS_CERTIFICATE");
  tls.key = file("VERBENA_IWARP_TLS_KEY");
  tls.authority = file("VERBENA_IWARP_TLS_AUTHORITY");
  read("VERBENA_IWARP_TLS_REQUIRE_PEER_CERTIFICATE", tls.require_peer_certificate);
  if (!tls.certificate.empty() || !tls.key.empty() || !tls.authority.empty()) options.tls = tls;
  return options;
}

}  // namespace verbena::iwarp
