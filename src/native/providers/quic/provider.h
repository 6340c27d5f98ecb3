// RDMA over QUIC: the messages of the iWARP wire (DDP and RDMAP) with one stream for each queue pair and
// several streams on a connection, encrypted and authenticated by TLS 1.3. QUIC itself is ngtcp2, loaded at
// run time. Depends on iwarp/, net/, soft/, verbs/ and util/.
#pragma once

#include <memory>

#include "verbs/provider.h"

namespace verbena::quic {

std::shared_ptr<Provider> make_provider();

}  // namespace verbena::quic
