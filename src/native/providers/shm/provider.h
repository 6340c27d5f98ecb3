// RDMA between processes of one host: regions are memory that the peer maps, so one-sided work is a copy by
// the initiator. Messages go through rings in shared memory; a Unix socket carries set-up and notices a
// peer's death. Needs no hardware, no root and no library; depends on soft/, verbs/ and util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::shm {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::shm
