// RDMA over kernel TCP: standard iWARP with MPA, DDP and RDMAP (RFC 5044, 5041, 5040, 6581, 7306). Payload is
// read directly into its region and written directly from it. Interoperates with other iWARP implementations;
// two Verbena ends also acknowledge executed requests. Needs no hardware, no root and no library. Depends on
// soft/, net/, verbs/ and util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::iwarp {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::iwarp
