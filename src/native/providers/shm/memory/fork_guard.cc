#include "providers/shm/memory/fork_guard.h"

#include <pthread.h>

#include <mutex>
#include <set>
#include <utility>

namespace verbena::shm {
namespace {

// Never destroyed: objects of the program may outlive static objects.
struct Guard {
  std::mutex mutex;
  std::set<int> sockets;
};

Guard& guard() {
  static Guard* const instance = [] {
    auto* made = new Guard;
    pthread_atfork([] { guard().mutex.lock(); }, [] { guard().mutex.unlock(); },
                   [] {
                     for (const int fd : guard().sockets) ::close(fd);
                     guard().sockets.clear();
                     guard().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

}  // namespace

UnsharedSocket::UnsharedSocket(UniqueFd fd) {
  const std::lock_guard lock(guard().mutex);
  guard().sockets.insert(fd.get());
  fd_ = std::move(fd);
}

void UnsharedSocket::reset() {
  if (!fd_) return;
  const std::lock_guard lock(guard().mutex);
  if (guard().sockets.erase(fd_.get()) == 0) {
    fd_.release();  // a forked child: closed already, and the number may mean another descriptor now
    return;
  }
  fd_.reset();
}

}  // namespace verbena::shm
