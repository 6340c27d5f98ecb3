#include "providers/shm/link.h"

#include <sys/uio.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "util/error.h"

namespace verbena::shm {

void Link::ring() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

bool Link::send(const OutgoingMessage& message) {
  const std::lock_guard lock(send_mutex_);
  if (alive() && send_message(socket_.get(), message)) return true;
  die();
  return false;
}

bool Link::take_hello(ControlMessage& message) {
  if (ready() || message.payload.size() != sizeof(Hello) || !message.fds[0] || !message.fds[1]) return false;
  if (sealed_size(message.fds[0].get()) != soft::kRegionTableBytes) return false;
  Hello hello;
  std::memcpy(&hello, message.payload.data(), sizeof hello);
  std::memcpy(gid_.data(), hello.gid, gid_.size());
  table_ = Mapping(message.fds[0].get(), soft::kRegionTableBytes, false);
  doorbell_ = std::move(message.fds[1]);
  process_vm_.store(probe_plain_memory(hello), std::memory_order_relaxed);
  ready_.store(true, std::memory_order_release);
  return true;
}

bool Link::probe_plain_memory(const Hello& hello) const {
  // Lets the slower way be chosen where the faster one is allowed, to test or to compare it.
  const char* choice = std::getenv("VERBENA_SHM_PLAIN_MEMORY");
  if (choice && std::string_view(choice) == "staged") return false;
  // A real read: it fails where the kernel forbids it, and mismatches where the process number means another
  // process.
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

Mapping Link::take_arena_gone(uint32_t id) {
  MappedArena& arena = arenas_[id % kMaxArenas];
  if (arena.id != id) return {};
  arena.base.store(nullptr, std::memory_order_release);
  return std::move(arena.mapping);
}

}  // namespace verbena::shm
