// The one list of providers, by name.
// Preference among them is the transport's business; a provider is a row in registry.cc, not a branch
// anywhere. Depends on the providers' entry points only.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "verbs/provider.h"

namespace verbena {

std::vector<std::string_view> provider_names();

// The process-wide instance; throws unsupported_provider for a name that is not in the list.
std::shared_ptr<Provider> find_provider(std::string_view name);

}  // namespace verbena
