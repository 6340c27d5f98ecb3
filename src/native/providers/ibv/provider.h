// Hardware verbs: InfiniBand, RoCE, iWARP and the kernel's software devices, through libibverbs and
// librdmacm. Both libraries are loaded at run time, so one build installs everywhere. Without their headers
// at build time, stub.cc replaces everything else here. Depends on soft/, verbs/ and util/ only.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::ibv {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::ibv
