// Names the calling thread for `top -H` and debuggers: at most 15 characters.
// Depends on the C library only.
#pragma once

#include <pthread.h>

namespace verbena {

inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace verbena
