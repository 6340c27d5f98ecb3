// RDMA over kernel TCP by the standard wire: MPA, DDP and RDMAP (RFC 5044, 5041, 5040, 6581, 7306), payload
// read straight into its region and written straight from it. Talks to other iWARP ends; two Verbena ends
// agree on acknowledgements besides. Needs no hardware, no root and no library; depends on soft/, verbs/ and
// util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::iwarp {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::iwarp
