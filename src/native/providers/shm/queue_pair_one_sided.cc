// One-sided operations: the initiator executes them on the target's memory, without the target's CPU. The
// target's region table states what is allowed; the access epoch keeps a region valid while it is accessed.
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "providers/shm/queue_pair.h"
#include "providers/soft/scatter.h"
#include "util/prefetch.h"
#include "util/spinlock.h"

namespace verbena::shm {

namespace {

constexpr uint64_t kBytesPerCheck = 2048;  // copying this many bytes takes as long as one check
constexpr uint64_t kPrefetched = 12;       // requests whose memory is prefetched
constexpr uint64_t kShortBytes = 512, kLineBytes = 64;

// A copy of a region table entry, for consecutive accesses. It stays valid until end_access() and while the
// lock is held, because removing a key waits for both. Its length is 0 if the key does not exist or does not
// allow the access.
struct CachedRegion {
  CachedRegion() = default;
  CachedRegion(const soft::RegionEntry* table, uint32_t wanted, uint32_t pd, uint32_t qp_num, uint32_t needed)
      : key(wanted) {
    const soft::RegionEntry* entry = soft::find_region(table, wanted);
    if (!entry || !soft::is_usable(*entry, pd, qp_num) || (entry->access & needed) != needed) return;
    addr = entry->addr, length = entry->length;
    arena = entry->arena, arena_offset = entry->arena_offset;
  }
  bool covers(uint64_t at, uint64_t bytes) const {
    return at >= addr && bytes <= length && at - addr <= length - bytes;
  }

  uint32_t key = 0, arena = 0;
  uint64_t addr = 0, length = 0, arena_offset = 0;
};

}  // namespace

using soft::SendEntry;

void ShmQueuePair::begin_access() {
  if (accessing_) return;
  accessing_ = true;
  auto& epoch = out_->header().access_epoch;
  // seq_cst, as is the store that removes a key: either this thread sees that the key is gone, or the owner
  // of the key sees the access.
  epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
}

void ShmQueuePair::end_access() {
  if (!accessing_) return;
  accessing_ = false;
  if (!out_) return;
  auto& epoch = out_->header().access_epoch;
  epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

ShmQueuePair::Step ShmQueuePair::one_sided(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  const bool with_immediate = entry.opcode == Opcode::write_with_imm;
  if (entry.started && !with_immediate) return send_staged(index);
  if (entry.started) return entry.cursor < entry.length ? send_staged(index) : send_immediate(index);

  // Requests are executed in order, so the peer must first consume those in the ring.
  if (out_->outstanding() > 0) {
    if (!read_acknowledgements()) return finish(entry, Status::bad_resp_err);
    finish_acknowledged();
    // A busy-polling peer consumes a slot within a microsecond. Before a long copy, waiting for that costs
    // less than a retry by the progress thread.
    for (uint64_t checks = entry.length / kBytesPerCheck; checks > 0 && out_->outstanding() > 0; --checks) {
      cpu_relax();
      if (!read_acknowledgements()) return finish(entry, Status::bad_resp_err);
      finish_acknowledged();
    }
    if (out_->outstanding() > 0) return Step::blocked;
  }
  const uint32_t needed = soft::remote_access_of(entry.opcode);
  const auto refuse = [&](Status status) {
    out_->header().fault.store(static_cast<uint32_t>(status), std::memory_order_relaxed);
    wake_pending_ = true;
    return finish(entry, status);
  };
  const bool atomic = needed == access::remote_atomic;
  if (atomic && entry.length != sizeof(uint64_t)) return finish(entry, Status::loc_len_err);
  if ((out_->header().access_flags.load(std::memory_order_relaxed) & needed) == 0 ||
      (atomic && entry.remote_addr % sizeof(uint64_t) != 0)) {
    return refuse(Status::rem_inv_req_err);
  }
  if (entry.length > 0) {
    if (!link_->regions()) return Step::blocked;  // the table has not arrived yet
    begin_access();
    // Checked again after the access has begun: a peer that closes its ring first changes `responder` and
    // then checks for accesses.
    if (out_->header().responder.load(std::memory_order_seq_cst) != static_cast<uint32_t>(Responder::ready))
      return Step::blocked;
    const soft::RegionEntry* region = nullptr;
    const uint32_t peer_pd = out_->header().protection_domain.load(std::memory_order_relaxed);
    const Status status = soft::check_remote(link_->regions(), entry.rkey, peer_pd, peer_qp_,
                                             entry.remote_addr, entry.length, needed, &region);
    if (status != Status::success) return refuse(status);
    const uint32_t arena = region->arena;
    if (arena == 0) return access_plain(index);
    const auto [target, is_mapped] =
        link_->arena_bytes(arena, region->arena_offset + (entry.remote_addr - region->addr), entry.length);
    if (!is_mapped) return Step::blocked;                     // the arena's descriptor has not arrived yet
    if (!target) return finish(entry, Status::bad_resp_err);  // an impossible entry
    if (needed != access::remote_read && !link_->is_writable(arena)) return refuse(Status::rem_access_err);
    // The peer chose the offset in the arena: where it is not aligned, an atomic access could end this
    // process.
    if (atomic && reinterpret_cast<uint64_t>(target) % sizeof(uint64_t) != 0)
      return finish(entry, Status::bad_resp_err);
    cached_rkey_ = entry.rkey;
    cached_offset_ = reinterpret_cast<uint64_t>(target) - entry.remote_addr;
    return access_directly(index, target);
  }
  entry.started = true;
  return with_immediate ? send_immediate(index) : finish(entry, Status::success);
}

// Prefetches the remote memory of requests that were posted together, so that their cache misses overlap.
// Only a hint: the cached address may be out of date.
void ShmQueuePair::prefetch_remote(uint32_t rkey, uint64_t remote_addr, uint64_t length) const {
  if (rkey != cached_rkey_ || length > kShortBytes) return;
  const uint64_t at = remote_addr + cached_offset_;
  for (uint64_t line = at / kLineBytes * kLineBytes; line < at + length; line += kLineBytes) {
    prefetch(reinterpret_cast<const void*>(line));
  }
}

// The fast path for a batch of short READs or WRITEs, for which a queue entry costs more than the copy. Stops
// at the first request that is not a plain, unsignaled one of the first's opcode; the caller puts the rest
// into the send queue.
size_t ShmQueuePair::copy_at_once(std::span<const SendRequest> batch) {
  if (batch.empty()) return 0;
  const Opcode opcode = batch[0].opcode;
  const bool writes = opcode == Opcode::write;
  const auto is_ordinary = [opcode](const SendRequest& request) {
    return request.opcode == opcode && request.flags == 0 && !request.crc32c && request.local.size() == 1 &&
           request.local[0].length > 0 && request.local[0].length < kFragmentBytes;
  };
  if ((opcode != Opcode::read && !writes) || !is_ordinary(batch[0]) || !send_queue_.allows(opcode) ||
      send_queue_.head() != send_queue_.tail() || is_halted() || !may_transmit() || !out_ ||
      out_->outstanding() > 0 || !link_->regions()) {
    return 0;
  }
  begin_access();
  const uint32_t needed = soft::remote_access_of(opcode);
  const RingHeader& peer = out_->header();
  const bool may_access =
      peer.responder.load(std::memory_order_seq_cst) == static_cast<uint32_t>(Responder::ready) &&
      (peer.access_flags.load(std::memory_order_relaxed) & needed) != 0;
  const uint32_t peer_pd = peer.protection_domain.load(std::memory_order_relaxed);
  CachedRegion local, remote;
  size_t done = 0, expected = 1;
  for (; may_access && done < batch.size() && is_ordinary(batch[done]); ++done) {
    for (; expected < std::min(batch.size(), done + 1 + kPrefetched); ++expected) {
      prefetch_remote(batch[expected].rkey, batch[expected].remote_addr,
                      soft::total_length(batch[expected].local));
    }
    const SendRequest& request = batch[done];
    const Sge& here = request.local[0];
    if (here.lkey != local.key) {
      local = CachedRegion(context().regions().entries(), here.lkey, pd(), number_,
                           writes ? 0 : access::local_write);
    }
    if (request.rkey != remote.key) {
      remote = CachedRegion(link_->regions(), request.rkey, peer_pd, peer_qp_, needed);
      if (remote.arena == 0) break;
      const std::byte* base = link_->arena_bytes(remote.arena, remote.arena_offset, remote.length).at;
      if (!base || (writes && !link_->is_writable(remote.arena))) break;
      cached_rkey_ = remote.key;
      cached_offset_ = reinterpret_cast<uint64_t>(base) - remote.addr;
    }
    if (!local.covers(here.addr, here.length) || !remote.covers(request.remote_addr, here.length)) break;
    auto* own = reinterpret_cast<std::byte*>(here.addr);
    auto* peers = reinterpret_cast<std::byte*>(request.remote_addr + cached_offset_);
    soft::copy_bytes(writes ? peers : own, writes ? own : peers, here.length);
  }
  end_access();
  return done;
}

ShmQueuePair::Step ShmQueuePair::access_directly(uint64_t index, std::byte* target) {
  SendEntry& entry = send_queue_.at(index);
  const auto local = send_queue_.local(index);
  switch (entry.opcode) {
    case Opcode::read:
      if (entry.crc32c) {
        *entry.crc32c = soft::scatter_summed(local, target, entry.length);
      } else {
        soft::scatter(local, 0, target, entry.length);
      }
      break;
    case Opcode::compare_swap:
    case Opcode::fetch_add: {
      const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(target));
      uint64_t old = entry.compare_add;
      if (entry.opcode == Opcode::fetch_add) {
        old = word.fetch_add(entry.compare_add);
      } else {
        word.compare_exchange_strong(old, entry.swap);
      }
      soft::scatter(local, 0, reinterpret_cast<std::byte*>(&old), sizeof old);
      break;
    }
    default:
      if (entry.crc32c) {
        *entry.crc32c = soft::gather_summed(local, target, entry.length);
      } else {
        soft::gather(local, 0, target, entry.length);
      }
      break;
  }
  if (entry.opcode != Opcode::write_with_imm) return finish(entry, Status::success);
  entry.started = true;
  entry.cursor = entry.length;
  return send_immediate(index);
}

// For memory of the peer outside of any arena: the kernel copies it (process_vm_readv and process_vm_writev).
// For atomics, or where these calls are forbidden, the peer executes the operation.
ShmQueuePair::Step ShmQueuePair::access_plain(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  const bool atomic = is_atomic(entry.opcode);
  if (atomic || !link_->can_use_process_vm()) {
    entry.started = true;
    return send_staged(index);
  }
  uint64_t done = 0;
  while (done < entry.length) {
    iovec local[soft::kMaxSges];
    size_t count = 0;
    soft::for_each_run(send_queue_.local(index), done, entry.length - done,
                       [&](std::byte* at, uint64_t, uint64_t length) { local[count++] = {at, length}; });
    const iovec remote{reinterpret_cast<void*>(entry.remote_addr + done), entry.length - done};
    const ssize_t moved = entry.opcode == Opcode::read
                              ? process_vm_readv(link_->pid(), local, count, &remote, 1, 0)
                              : process_vm_writev(link_->pid(), local, count, &remote, 1, 0);
    if (moved > 0) {
      done += static_cast<uint64_t>(moved);
    } else if (moved < 0 && (errno == EPERM || errno == ENOSYS)) {
      link_->disable_process_vm();
      entry.started = true;
      entry.cursor = done;
      return send_staged(index);
    } else {
      return finish(entry, errno == ESRCH ? Status::retry_exc_err : Status::rem_op_err);
    }
  }
  if (entry.opcode != Opcode::write_with_imm) return finish(entry, Status::success);
  entry.started = true;
  entry.cursor = entry.length;
  return send_immediate(index);
}

}  // namespace verbena::shm
