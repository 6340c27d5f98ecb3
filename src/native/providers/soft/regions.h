// Registered memory of one context: RegionTable (keys) and SoftRegion, with the checks of every local access.
// Depends on verbs/ and util/ only.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "providers/soft/region_layout.h"
#include "providers/soft/windows.h"
#include "verbs/provider.h"

namespace verbena::soft {

class RegionTable {
 public:
  // `entries` are kRegionSlots zeroed entries that outlive the table.
  explicit RegionTable(RegionEntry* entries) : entries_(entries) {}

  const RegionEntry* entries() const { return entries_; }
  // Draws an unused random key and publishes the region under it. Throws limit_exceeded when the table is
  // full.
  uint32_t insert(uint32_t scope, uint64_t addr, uint64_t length, uint32_t access, uint32_t arena,
                  uint64_t arena_offset);
  // The key is refused from now on; accesses that began earlier may still run.
  void remove(uint32_t key);

  // The bytes that a request may use locally; nullptr for an unknown key, another PD, bytes outside the
  // region, or memory that is not writable.
  std::byte* resolve(uint32_t pd, const Sge& sge, bool for_writing) const {
    const RegionEntry* entry = find_region(entries_, sge.lkey);
    if (!entry || entry->scope != pd || !covers(*entry, sge.addr, sge.length)) return nullptr;
    if (for_writing && !(entry->access & access::local_write)) return nullptr;
    return reinterpret_cast<std::byte*>(sge.addr);
  }

 private:
  RegionEntry* entries_;
  std::mutex mutex_;
  uint32_t count_ = 0;
};

// Zeroed entries in private memory, for contexts that do not share their table.
std::shared_ptr<RegionEntry> private_region_entries();

// Checks a peer's access to the region under `key` through a queue pair: success, or the requester's status.
// `entry` receives the region on success.
Status check_remote(const RegionEntry* table, uint32_t key, uint32_t pd, uint32_t qp_num, uint64_t addr,
                    uint64_t length, uint32_t needed_access, const RegionEntry** entry);

// The access a peer needs for an opcode; 0 for SEND.
uint32_t remote_access_of(Opcode opcode);

// Throws unless the flags are consistent: memory that a peer or a completion may change must be locally
// writable.
void check_access_flags(uint32_t access);

// Locks [addr, addr+length) in memory. Throws memlock with the limit.
void pin_memory(std::byte* addr, size_t length);
void unpin_memory(std::byte* addr, size_t length);

class SoftRegion final : public MemoryRegion {
 public:
  // `quiesce` waits until no thread and no peer uses the region; it is called once, after its keys were
  // removed. Its argument: whether peers may use it, by its own key or by that of a window.
  SoftRegion(RegionTable& table, std::shared_ptr<void> owner, uint32_t key, std::byte* addr, size_t length,
             uint32_t access, bool pinned, std::function<void(bool)> quiesce);
  ~SoftRegion() override { close(); }
  uint32_t lkey() const override { return key_; }
  uint32_t rkey() const override { return key_; }
  void close() override;

  std::byte* addr() const { return addr_; }
  size_t length() const { return length_; }
  uint32_t access() const { return access_; }
  bool is_of(const void* owner) const { return identity_ == owner; }
  BoundWindows& windows() { return windows_; }

 private:
  RegionTable& table_;
  std::shared_ptr<void> owner_;
  const void* const identity_;  // of the owner, which is released by close()
  const uint32_t key_;
  std::byte* const addr_;
  const size_t length_;
  const uint32_t access_;
  const bool pinned_;
  std::function<void(bool)> quiesce_;
  BoundWindows windows_;
  std::once_flag closed_;
};

}  // namespace verbena::soft
