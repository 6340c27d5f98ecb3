#include "util/processor/move_to_other_core.h"

#include <sched.h>

namespace verbena {

bool move_to_other_core() {
  cpu_set_t allowed;
  const int here = ::sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t others = allowed;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  // The kernel keeps the requested set and intersects it with the container's cores at any time. So a thread
  // without a limit requests all cores; a thread with one gets its limit back.
  cpu_set_t every, granted;
  CPU_ZERO(&every);
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &every);
  const bool is_unlimited = ::sched_setaffinity(0, sizeof every, &every) == 0 &&
                            ::sched_getaffinity(0, sizeof granted, &granted) == 0 &&
                            CPU_EQUAL(&granted, &allowed);
  if (!is_unlimited) ::sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace verbena
