// Moves the calling thread to another core than the one it runs on.
// Depends on system calls only.
#pragma once

namespace verbena {

// False: the thread may use no other core, or the kernel refused. The thread's affinity is as before; a
// thread that may use every core of its container may also use cores that the container is given later.
bool move_to_other_core();

}  // namespace verbena
