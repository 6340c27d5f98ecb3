// Keeps a forked child from holding our sockets open: a peer learns of this process's death by them.
#pragma once

#include "util/fd.h"

namespace verbena::shm {

// A socket that fork() does not hand down: it is closed in the child, whose copy of this object is dead.
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
