// Link: what one process knows of a peer process (socket, region table, arenas) and how it accesses the
// peer's memory. Queue pairs read it on the data path; only the progress thread fills it in.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "providers/shm/control.h"
#include "providers/shm/memory/arena.h"
#include "providers/shm/memory/memfd.h"
#include "providers/soft/region_layout.h"
#include "util/clock.h"
#include "util/fd.h"

namespace verbena::shm {

class Link {
 public:
  // `dialled`: the address at which this process reached the peer; empty: the peer opened the link.
  Link(UniqueFd socket, int pid, std::string dialled);

  int socket() const { return socket_.get(); }
  int pid() const { return pid_; }
  const std::string& dialled() const { return dialled_; }
  uint64_t nonce() const { return nonce_; }
  // Set by the peer's hello, before ready() becomes true. Any process of the user may claim any GID.
  const Gid& gid() const { return gid_; }
  uint64_t peer_nonce() const { return peer_nonce_; }
  // Null before the peer's program has connected a queue pair to one of ours.
  const soft::RegionEntry* regions() const {
    return grants_.load(std::memory_order_acquire) ? reinterpret_cast<const soft::RegionEntry*>(table_.data())
                                                   : nullptr;
  }
  bool can_use_process_vm() const { return process_vm_.load(std::memory_order_relaxed); }
  void disable_process_vm() { process_vm_.store(false, std::memory_order_relaxed); }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  uint64_t opened_ns() const { return opened_ns_; }
  // Whether the peer has not sent its hello in time.
  bool is_silent(uint64_t now) const { return !ready() && now - opened_ns_ > kHelloNs; }
  bool alive() const { return alive_.load(std::memory_order_acquire); }
  void fail() { alive_.store(false, std::memory_order_release); }

  void ring_doorbell() const { send_wake(socket_.get()); }  // wakes the peer's progress thread
  // Serialised. A message that the peer has no room for is kept and sent later; a peer with thousands of kept
  // messages counts as dead.
  bool send(const OutgoingMessage& message);
  // Sends kept messages; true while some are left.
  bool flush();

  // Where [offset, offset+length) of the peer's arena is mapped here. The progress thread maps arenas while
  // queue pairs look them up, so one lookup answers both questions.
  struct ArenaBytes {
    std::byte* at = nullptr;  // null: the range is not inside the arena, or the arena is not mapped
    bool is_mapped = false;
  };
  ArenaBytes arena_bytes(uint32_t id, uint64_t offset, uint64_t length) const {
    const MappedArena& arena = arenas_[id % kMaxArenas];
    std::byte* base = arena.base.load(std::memory_order_acquire);
    if (!base || arena.id != id) return {};
    if (offset > arena.size || length > arena.size - offset) return {.is_mapped = true};
    return {.at = base + offset, .is_mapped = true};
  }
  // After arena_bytes() has returned an address.
  bool is_writable(uint32_t id) const { return arenas_[id % kMaxArenas].writable; }

  // What this process gives the peer, each once.
  void offer_hello(const Gid& own);
  void offer_access(const AccessGrant& grant, int table);
  void offer_arena(uint32_t id, int fd);
  void withdraw_arena(uint32_t id);
  std::set<uint32_t> offered_arenas() const;

  // For the progress thread. False: the peer violated the protocol.
  bool take_hello(const ControlMessage& message);
  bool take_access(ControlMessage& message);
  bool take_arena(ControlMessage& message);
  // Returns the mapping, to be dropped when no queue pair uses it.
  Mapping drop_arena(uint32_t id);
  // Whether the peer is the process that listens at the address of its GID; nothing: not known yet.
  std::optional<bool> is_proved() const { return proved_; }
  void set_proved(bool proved) { proved_ = proved; }
  // Requests that wait for it. False: there are too many.
  bool keep_until_proved(ControlMessage& request);
  std::vector<ControlMessage> take_kept() { return std::exchange(kept_, {}); }

 private:
  struct MappedArena {
    uint32_t id = 0;
    size_t size = 0;
    bool writable = false;
    std::atomic<std::byte*> base{nullptr};
    Mapping mapping;
  };

  bool probe_process_vm(const AccessGrant& grant) const;

  static constexpr uint64_t kHelloNs = 5'000'000'000;

  UnsharedFd socket_;
  const uint64_t opened_ns_ = now_ns();
  const int pid_;
  const std::string dialled_;
  const uint64_t nonce_;
  std::mutex send_mutex_;
  std::deque<UnsentMessage> unsent_;  // under send_mutex_
  mutable std::mutex offered_mutex_;
  bool access_offered_ = false;  // under offered_mutex_
  std::set<uint32_t> offered_;   // arenas, under offered_mutex_
  Gid gid_{};
  uint64_t peer_nonce_ = 0;
  std::optional<bool> proved_;        // for the progress thread
  std::vector<ControlMessage> kept_;  // for the progress thread
  std::atomic<bool> grants_{false};   // table_ is set
  Mapping table_;
  std::atomic<bool> process_vm_{false};
  std::atomic<bool> ready_{false};
  std::atomic<bool> alive_{true};
  size_t mapped_bytes_ = 0;  // for the progress thread
  const std::unique_ptr<MappedArena[]> arenas_ = std::make_unique<MappedArena[]>(kMaxArenas);
};

// A peer that accesses our memory, as seen in its ring; holds the ring's mapping.
struct PeerAccess {
  std::shared_ptr<Mapping> ring;
  std::shared_ptr<Link> link;
  const std::atomic<uint64_t>* epoch;
  uint64_t seen;
};

}  // namespace verbena::shm
