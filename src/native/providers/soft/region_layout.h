// The layout of a registered region's entry in memory. The shm provider shares this table with its peers,
// read-only, so that an initiator checks a key itself. Hence the fixed layout, separate from the code that
// uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::soft {

struct RegionEntry {
  std::atomic<uint32_t> key;  // 0: free. Written last on insert, first on removal.
  uint32_t scope;             // the number of a protection domain, or window_scope() of a queue pair
  uint64_t addr;
  uint64_t length;
  uint32_t access;
  uint32_t arena;  // 0: plain memory of the process
  uint64_t arena_offset;
  uint64_t unused[3];
};
static_assert(sizeof(RegionEntry) == 64 && offsetof(RegionEntry, arena_offset) == 32);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Keys are random in all bits; the low bits are also the slot, so a look-up is one load and one comparison.
constexpr uint32_t kRegionSlots = 1u << 18;
constexpr size_t kRegionTableBytes = sizeof(RegionEntry) * kRegionSlots;
constexpr uint32_t kMaxRegions =
    kRegionSlots / 2;  // half full: drawing a free key takes two tries on average
constexpr uint32_t kMaxWindows =
    kMaxRegions - (1u << 14);  // peers cause windows: the rest is for this process

// The scope of a window: protection domains have lower numbers.
constexpr uint32_t window_scope(uint32_t qp_num) { return 1u << 31 | qp_num; }

constexpr bool is_window_scope(uint32_t scope) { return scope >> 31; }

// Whether requests that arrive at this queue pair may use the region.
inline bool is_usable(const RegionEntry& entry, uint32_t pd, uint32_t qp_num) {
  return entry.scope == pd || entry.scope == window_scope(qp_num);
}

inline const RegionEntry* find_region(const RegionEntry* table, uint32_t key) {
  const RegionEntry& entry = table[key & (kRegionSlots - 1)];
  return key != 0 && entry.key.load(std::memory_order_acquire) == key ? &entry : nullptr;
}

inline bool covers(const RegionEntry& entry, uint64_t addr, uint64_t length) {
  return addr >= entry.addr && length <= entry.length && addr - entry.addr <= entry.length - length;
}

}  // namespace verbena::soft
