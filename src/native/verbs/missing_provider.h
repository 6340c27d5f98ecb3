// Stands in for a provider that this build does not contain: it is listed, reports the reason, and open()
// throws provider_missing. Depends on the provider contract and util/ only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "util/error.h"
#include "verbs/provider.h"

namespace verbena {

class MissingProvider final : public Provider {
 public:
  MissingProvider(const char* name, const char* reason) : name_(name), reason_(reason) {}
  std::string_view name() const override { return name_; }
  std::string unavailable_reason() const override { return reason_; }
  std::vector<DeviceAttributes> devices() const override { return {}; }
  std::shared_ptr<Context> open(const std::string&) override { refuse(reason_); }

  [[noreturn]] static void refuse(const char* reason) {
    throw Error("provider_missing", "open device", reason);
  }

 private:
  const char *const name_, *const reason_;
};

}  // namespace verbena
