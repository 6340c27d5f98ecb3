// PortSharing: for wires whose connections are connections of the host's network, so that a program can have
// one port for several protocols. A context implements it in addition to Context.
#pragma once

#include <cstdint>
#include <memory>

#include "util/fd.h"
#include "verbs/provider.h"

namespace verbena {

// A listener that gets connections which another part of the program has accepted.
class SocketListener : public Listener {
 public:
  // Takes over an accepted TCP connection of which no byte has been consumed. The peer's request must be
  // complete within `timeout_ms`, or within the wire's own time limit if that is shorter. The connection is
  // closed if the listener is.
  virtual void take_over(UniqueFd socket, uint32_t timeout_ms) = 0;
};

class PortSharing {
 public:
  virtual ~PortSharing() = default;
  // A listener without a port of its own. nullptr: connections of this wire are not TCP connections.
  virtual std::shared_ptr<SocketListener> listen_to_sockets(int backlog) = 0;
  // Closes the port at which the context waits for peers that know its GID and the number of a queue pair.
  // Afterwards only connect() and listeners make connections. Call it before queue pairs are created.
  virtual void close_own_port() = 0;
};

}  // namespace verbena
