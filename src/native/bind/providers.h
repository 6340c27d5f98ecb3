// A provider as Python holds it.
#pragma once

#include "bind/handle.h"
#include "verbs/provider.h"

namespace verbena::bind {

struct ProviderHandle {
  Owned<Provider> provider;
};

}  // namespace verbena::bind
