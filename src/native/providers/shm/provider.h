// RDMA between processes of one host. Regions are memory that the peer maps, so a one-sided operation is a
// copy by the initiator. Messages go through rings in shared memory; a Unix socket carries set-up and shows a
// peer's death. Needs no hardware, no root and no library. Depends on soft/, verbs/ and util/ only.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::shm {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::shm
