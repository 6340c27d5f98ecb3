#include "util/environment.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "util/error.h"

namespace verbena {
namespace {

double number(const Environment& environment, const std::string& name, const char* value,
              const char* wanted) {
  char* end = nullptr;
  const double result = std::strtod(value, &end);
  if (*end != '\0' || !std::isfinite(result) || result <= 0 || result > 1e9)
    environment.refuse(name, value, wanted);
  return result;
}

}  // namespace

void Environment::refuse(const std::string& name, const char* value, const char* wanted) const {
  throw Error("invalid_argument", "open device",
              prefix_ + name + " is '" + value + "'; it must be " + wanted);
}

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
  if (!out && !is_one_of({"0", "false", "no", "off"})) refuse(name, value, "on or off");
}

void Environment::read(const std::string& name, std::string& out) const {
  if (const char* value = look_up(name)) out = value;
}

void Environment::read_seconds(const std::string& name, uint32_t& out_ms) const {
  if (const char* value = look_up(name)) {
    const double seconds = number(*this, name, value, "a number of seconds");
    if (seconds > 1e6) refuse(name, value, "a number of seconds");
    out_ms = static_cast<uint32_t>(std::ceil(seconds * 1000));
  }
}

void Environment::read_count(const std::string& name, uint32_t& out) const {
  if (const char* value = look_up(name)) {
    out = static_cast<uint32_t>(std::ceil(number(*this, name, value, "a number from 1 on")));
  }
}

}  // namespace verbena
