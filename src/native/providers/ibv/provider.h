// Real verbs: InfiniBand, RoCE, iWARP and the kernel's software devices, through libibverbs and librdmacm.
// Both libraries are loaded at run time, so one build installs everywhere; where their headers were missing
// at build time stub.cc takes the place of all else here. May depend on soft/, verbs/ and util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::ibv {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::ibv
