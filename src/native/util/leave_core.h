// A thread goes to another core than the one it is on, if it may use another.
#pragma once

namespace verbena {

// True: it has gone. The cores it may use are the same as before; whoever may use all that its container has
// may use those that the container is given later, too.
bool leave_core();

}  // namespace verbena
