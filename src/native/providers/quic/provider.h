// RDMA over QUIC: the messages of the iWARP wire (DDP and RDMAP), each queue pair on a stream of its own,
// several to a connection, encrypted and authenticated by TLS 1.3. QUIC itself is ngtcp2's, found at run
// time. Depends on iwarp/, soft/, verbs/ and util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::quic {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::quic
