// GIDs of the TCP and QUIC wires: a socket address in the form that queue pairs exchange.
#pragma once

#include <optional>

#include "net/address.h"
#include "verbs/types.h"

namespace verbena::iwarp {

// A GID to which a peer can connect. With IPv4 the GID has room for the port; with IPv6 the port travels as
// the LID.
Gid to_gid(const net::SocketAddress& address);
std::optional<net::SocketAddress> to_address(const Gid& gid, uint16_t lid);

}  // namespace verbena::iwarp
