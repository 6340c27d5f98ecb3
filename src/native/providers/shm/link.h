// Link: what one process knows of a peer process (socket, region table, arenas, doorbell) and how it accesses
// the peer's memory. Queue pairs read it on the data path; only the progress thread fills it in.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "providers/shm/control.h"
#include "providers/shm/memory/arena.h"
#include "providers/shm/memory/fork_guard.h"
#include "providers/shm/memory/memfd.h"
#include "providers/soft/region_layout.h"

namespace verbena::shm {

class Link {
 public:
  Link(UniqueFd socket, int pid) : socket_(std::move(socket)), pid_(pid) {}

  int socket() const { return socket_.get(); }
  int pid() const { return pid_; }
  // Set by the peer's hello, before ready() becomes true.
  const Gid& gid() const { return gid_; }
  const soft::RegionEntry* regions() const {
    return reinterpret_cast<const soft::RegionEntry*>(table_.data());
  }
  bool can_use_process_vm() const { return process_vm_.load(std::memory_order_relaxed); }
  void disable_process_vm() { process_vm_.store(false, std::memory_order_relaxed); }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  void fail() { alive_.store(false, std::memory_order_release); }

  void ring_doorbell() const;  // wakes the peer's progress thread
  // Serialised. A message that the peer has no room for is kept and sent later; a peer with thousands of kept
  // messages counts as dead.
  bool send(const OutgoingMessage& message);
  // Sends kept messages; true while some are left.
  bool flush();

  // Where [offset, offset+length) of the peer's arena is mapped here; nullptr if it is not (yet).
  std::byte* arena_bytes(uint32_t id, uint64_t offset, uint64_t length) const {
    const MappedArena& arena = arenas_[id % kMaxArenas];
    std::byte* base = arena.base.load(std::memory_order_acquire);
    if (!base || arena.id != id || offset > arena.size || length > arena.size - offset) return nullptr;
    return base + offset;
  }

  // For the progress thread. False: the peer violated the protocol.
  bool take_hello(ControlMessage& message);
  bool take_arena(ControlMessage& message);
  // Returns the mapping, to be dropped when no queue pair uses it.
  Mapping drop_arena(uint32_t id);

 private:
  struct MappedArena {
    uint32_t id = 0;
    size_t size = 0;
    std::atomic<std::byte*> base{nullptr};
    Mapping mapping;
  };

  bool probe_process_vm(const Hello& hello) const;

  UnsharedSocket socket_;
  const int pid_;
  std::mutex send_mutex_;
  std::deque<UnsentMessage> unsent_;  // under send_mutex_
  Gid gid_{};
  Mapping table_;
  UniqueFd doorbell_;
  std::atomic<bool> process_vm_{false};
  std::atomic<bool> ready_{false};
  std::atomic<bool> alive_{true};
  std::vector<MappedArena> arenas_{kMaxArenas};
};

// A peer that accesses our memory, as seen in its ring; holds the ring's mapping.
struct PeerAccess {
  std::shared_ptr<Mapping> ring;
  std::shared_ptr<Link> link;
  const std::atomic<uint64_t>* epoch;
  uint64_t seen;
};

}  // namespace verbena::shm
