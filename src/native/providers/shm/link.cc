#include "providers/shm/link.h"

#include <sys/uio.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "util/error.h"
#include "util/random.h"

namespace verbena::shm {
namespace {

constexpr size_t kMaxUnsent = 4096;
constexpr size_t kMaxKept = 1024;
constexpr size_t kMaxMappedBytes = size_t{1} << 43;  // of one peer: sparse files could take all addresses

}  // namespace

Link::Link(UniqueFd socket, int pid, std::string dialled)
    : socket_(std::move(socket)), pid_(pid), dialled_(std::move(dialled)), nonce_(random_value<uint64_t>()) {}

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

void Link::offer_hello(const Gid& own) {
  Hello hello{.gid = {}, .nonce = nonce_};
  std::memcpy(hello.gid, own.data(), own.size());
  send(
      {.kind = MessageKind::hello, .private_data = {reinterpret_cast<const uint8_t*>(&hello), sizeof hello}});
}

void Link::offer_access(const AccessGrant& grant, int table) {
  const std::lock_guard lock(offered_mutex_);
  if (std::exchange(access_offered_, true)) return;
  send({.kind = MessageKind::access,
        .private_data = {reinterpret_cast<const uint8_t*>(&grant), sizeof grant},
        .fds = {table, -1}});
}

void Link::offer_arena(uint32_t id, int fd) {
  const std::lock_guard lock(offered_mutex_);
  if (offered_.insert(id).second) send({.kind = MessageKind::arena, .argument = id, .fds = {fd, -1}});
}

void Link::withdraw_arena(uint32_t id) {
  const std::lock_guard lock(offered_mutex_);
  if (offered_.erase(id) > 0) send({.kind = MessageKind::arena_gone, .argument = id});
}

std::set<uint32_t> Link::offered_arenas() const {
  const std::lock_guard lock(offered_mutex_);
  return offered_;
}

bool Link::take_hello(const ControlMessage& message) {
  if (ready() || message.payload.size() != sizeof(Hello)) return false;
  Hello hello;
  std::memcpy(&hello, message.payload.data(), sizeof hello);
  std::memcpy(gid_.data(), hello.gid, gid_.size());
  peer_nonce_ = hello.nonce;
  if (!dialled_.empty()) proved_ = dialled_ == node_address(gid_);
  ready_.store(true, std::memory_order_release);
  return true;
}

bool Link::take_access(ControlMessage& message) {
  if (regions() || message.payload.size() != sizeof(AccessGrant) || !message.fds[0]) return false;
  if (sealed_size(message.fds[0].get()) != soft::kRegionTableBytes) return false;
  AccessGrant grant;
  std::memcpy(&grant, message.payload.data(), sizeof grant);
  table_ = Mapping(message.fds[0].get(), soft::kRegionTableBytes, false);
  process_vm_.store(probe_process_vm(grant), std::memory_order_relaxed);
  grants_.store(true, std::memory_order_release);
  return true;
}

bool Link::probe_process_vm(const AccessGrant& grant) const {
  // Selects the slower way where the faster one is allowed, for tests and comparison.
  const char* choice = std::getenv("VERBENA_SHM_PLAIN_MEMORY");
  if (choice && std::string_view(choice) == "staged") return false;
  // A real read: it fails where the kernel forbids it, and does not match if the pid means another process
  // here.
  uint64_t token = 0;
  const iovec local{&token, sizeof token};
  const iovec remote{reinterpret_cast<void*>(grant.probe_addr), sizeof token};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == sizeof token && token == grant.probe_token;
}

bool Link::take_arena(ControlMessage& message) {
  const uint64_t id = message.header.argument;
  const size_t size = message.fds[0] ? sealed_size(message.fds[0].get()) : 0;
  if (size == 0 || id == 0 || id > UINT32_MAX) return false;
  MappedArena& arena = arenas_[id % kMaxArenas];
  if (arena.base.load(std::memory_order_relaxed)) return arena.id == id;  // announced twice
  if (size > kMaxMappedBytes - mapped_bytes_) return false;
  arena.writable = !is_sealed_for_writing(message.fds[0].get());
  arena.mapping = Mapping(message.fds[0].get(), size, arena.writable);
  arena.id = static_cast<uint32_t>(id);
  arena.size = size;
  mapped_bytes_ += size;
  arena.base.store(arena.mapping.data(), std::memory_order_release);
  return true;
}

Mapping Link::drop_arena(uint32_t id) {
  MappedArena& arena = arenas_[id % kMaxArenas];
  if (arena.id != id || !arena.base.load(std::memory_order_relaxed)) return {};
  arena.base.store(nullptr, std::memory_order_release);
  mapped_bytes_ -= arena.size;
  return std::move(arena.mapping);
}

bool Link::keep_until_proved(ControlMessage& request) {
  if (kept_.size() == kMaxKept) return false;
  kept_.push_back(std::move(request));
  return true;
}

}  // namespace verbena::shm
