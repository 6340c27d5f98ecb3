// Asynchronous events of a device: completion queues that overran, connections established by data.
#pragma once

#include "providers/ibv/device/library.h"

namespace verbena::ibv {

// Handles and acknowledges the event. Called on the loop's thread only.
void handle_async_event(ibv_async_event& event);

}  // namespace verbena::ibv
