// Unguessable numbers from the kernel, for keys, GIDs and initial sequence numbers. For set-up only: each is
// a system call.
// May depend on util/ only.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstddef>

#include "util/error.h"

namespace verbena {

template <typename T>
T random_value() {
  T value;
  auto* out = reinterpret_cast<std::byte*>(&value);
  for (size_t done = 0; done < sizeof value;) {
    const ssize_t n = getrandom(out + done, sizeof value - done, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      throw Error("invalid_argument", "draw a random number", "getrandom() failed", errno);
    }
  }
  return value;
}

}  // namespace verbena
