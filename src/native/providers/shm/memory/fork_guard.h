// UnsharedSocket: a socket that a forked child does not keep open. Peers detect the death of this process by
// its sockets, so a child must not hold them.
#pragma once

#include "util/fd.h"

namespace verbena::shm {

// fork() closes the socket in the child, where this object is dead.
class UnsharedSocket {
 public:
  UnsharedSocket() = default;
  explicit UnsharedSocket(UniqueFd fd);
  UnsharedSocket(const UnsharedSocket&) = delete;
  UnsharedSocket& operator=(const UnsharedSocket&) = delete;
  ~UnsharedSocket() { reset(); }

  int get() const { return fd_.get(); }
  void reset();

 private:
  UniqueFd fd_;
};

}  // namespace verbena::shm
