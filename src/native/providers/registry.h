// The one list of providers, by name. A provider is a row in registry.cc; the transport layer decides which
// one to prefer. Depends on the providers' entry points only.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "verbs/provider.h"

namespace verbena {

std::vector<std::string_view> provider_names();

// The process-wide instance. Throws unsupported_provider for an unknown name.
std::shared_ptr<Provider> find_provider(std::string_view name);

}  // namespace verbena
