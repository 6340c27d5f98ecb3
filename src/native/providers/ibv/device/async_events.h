// What a device reports out of the ordinary: queues that overran, connections that came up on their own.
#pragma once

#include "providers/ibv/device/library.h"

namespace verbena::ibv {

// Acts on the event and acknowledges it. Called on the loop's thread only.
void handle_async_event(ibv_async_event& event);

}  // namespace verbena::ibv
