#include "providers/shm/link.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "util/error.h"

namespace verbena::shm {
namespace {

constexpr size_t kMaxUnsent = 4096;

// Only an eventfd can be written at any time without blocking or a signal.
bool is_eventfd(int fd) {
  char name[32];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
  return std::string_view(name, static_cast<size_t>(std::max<ssize_t>(length, 0))) == "anon_inode:[eventfd]";
}

}  // namespace

void Link::ring_doorbell() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

bool Link::send(const OutgoingMessage& message) {
  const std::lock_guard lock(send_mutex_);
  if (!alive()) return false;
  const Sent sent = unsent_.empty() ? send_message(socket_.get(), message) : Sent::busy;
  if (sent == Sent::done) return true;
  if (sent == Sent::gone || unsent_.size() == kMaxUnsent) {
    fail();
    return false;
  }
  unsent_.emplace_back(message);
  return true;
}

bool Link::flush() {
  const std::lock_guard lock(send_mutex_);
  while (alive() && !unsent_.empty()) {
    const Sent sent = send_message(socket_.get(), unsent_.front().view());
    if (sent == Sent::busy) return true;
    if (sent == Sent::gone) fail();
    unsent_.pop_front();
  }
  return false;
}

bool Link::take_hello(ControlMessage& message) {
  if (ready() || message.payload.size() != sizeof(Hello) || !message.fds[0] || !message.fds[1]) return false;
  if (sealed_size(message.fds[0].get()) != soft::kRegionTableBytes || !is_eventfd(message.fds[1].get()))
    return false;
  fcntl(message.fds[1].get(), F_SETFL, O_NONBLOCK);  // shared with the peer, which set it non-blocking too
  Hello hello;
  std::memcpy(&hello, message.payload.data(), sizeof hello);
  std::memcpy(gid_.data(), hello.gid, gid_.size());
  table_ = Mapping(message.fds[0].get(), soft::kRegionTableBytes, false);
  doorbell_ = std::move(message.fds[1]);
  process_vm_.store(probe_process_vm(hello), std::memory_order_relaxed);
  ready_.store(true, std::memory_order_release);
  return true;
}

bool Link::probe_process_vm(const Hello& hello) const {
  // Selects the slower way where the faster one is allowed, for tests and comparison.
  const char* choice = std::getenv("VERBENA_SHM_PLAIN_MEMORY");
  if (choice && std::string_view(choice) == "staged") return false;
  // A real read: it fails where the kernel forbids it, and does not match if the pid means another process
  // here.
  uint64_t token = 0;
  const iovec local{&token, sizeof token};
  const iovec remote{reinterpret_cast<void*>(hello.probe_addr), sizeof token};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == sizeof token && token == hello.probe_token;
}

bool Link::take_arena(ControlMessage& message) {
  const uint64_t id = message.header.argument;
  const size_t size = message.fds[0] ? sealed_size(message.fds[0].get()) : 0;
  if (size == 0 || id == 0 || id > UINT32_MAX) return false;
  MappedArena& arena = arenas_[id % kMaxArenas];
  if (arena.base.load(std::memory_order_relaxed)) return arena.id == id;  // announced twice
  arena.mapping = Mapping(message.fds[0].get(), size, true);
  arena.id = static_cast<uint32_t>(id);
  arena.size = size;
  arena.base.store(arena.mapping.data(), std::memory_order_release);
  return true;
}

Mapping Link::drop_arena(uint32_t id) {
  MappedArena& arena = arenas_[id % kMaxArenas];
  if (arena.id != id) return {};
  arena.base.store(nullptr, std::memory_order_release);
  return std::move(arena.mapping);
}

}  // namespace verbena::shm
