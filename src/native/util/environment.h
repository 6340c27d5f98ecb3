// Environment: typed access to the environment variables of one prefix, such as VERBENA_IWARP_.
// May depend on util/ only.
#pragma once

#include <cstdint>
#include <string>

namespace verbena {

// The variables of one provider. A getter throws invalid_argument for a malformed value, and leaves its
// output alone if the variable is not set.
class Environment {
 public:
  explicit Environment(std::string prefix) : prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  const char* look_up(const std::string& name) const;  // nullptr: not set, or empty
  void read(const std::string& name, bool& out) const;
  void read(const std::string& name, std::string& out) const;
  void read_seconds(const std::string& name, uint32_t& out_ms) const;
  void read_count(const std::string& name, uint32_t& out) const;

  // Throws invalid_argument: the variable's value is not what `wanted` describes.
  [[noreturn]] void refuse(const std::string& name, const char* value, const char* wanted) const;

 private:
  const std::string prefix_;
};

}  // namespace verbena
