// Descriptors of processes, which become readable when the process has ended (Linux 5.3).
// May depend on util/ only.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include "util/fd.h"

namespace verbena {

// Empty: errno says why; ESRCH if there is no such process. Closed on exec.
inline UniqueFd open_pidfd(int pid) {
#ifdef SYS_pidfd_open
  constexpr long number = SYS_pidfd_open;
#else
  constexpr long number = 434;  // in kernel headers since Linux 5.3
#endif
  return UniqueFd(static_cast<int>(::syscall(number, pid, 0)));
}

}  // namespace verbena
