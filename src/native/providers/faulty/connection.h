// Listeners and connect requests that accept this provider's queue pairs. Connections themselves are the
// inner provider's.
#pragma once

#include <memory>

#include "verbs/port_sharing.h"

namespace verbena::faulty {

std::shared_ptr<SocketListener> wrap_listener(std::shared_ptr<Listener> inner);

}  // namespace verbena::faulty
