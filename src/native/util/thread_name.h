// A name for the calling thread, as `top -H` and debuggers show it: 15 letters at most.
#pragma once

#include <pthread.h>

namespace verbena {

inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace verbena
