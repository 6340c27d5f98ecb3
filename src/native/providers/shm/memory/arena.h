// ArenaPool: large memfds ("arenas") and the blocks cut from them. A peer maps whole arenas, so an arena
// contains only memory that the same peers may use in the same way. Used for set-up only. May not depend on
// links or queue pairs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "providers/shm/memory/memfd.h"
#include "providers/soft/context.h"
#include "verbs/provider.h"

namespace verbena::shm {

// How peers may map an arena. The seals of its memfd enforce it.
enum class PeerMapping : uint8_t { none, read_only, writable };

// What all memory of an arena has in common.
struct ArenaKind {
  ArenaKind(const MemoryOptions& options, int numa_node);
  bool operator==(const ArenaKind& other) const;
  bool has_ended() const { return has_group && group.expired(); }

  bool huge_pages;
  int numa_node;
  PeerMapping peer_mapping;
  bool has_group;
  std::weak_ptr<const MemoryGroup> group;
};

struct Arena {
  bool is_empty() const { return !free_blocks.empty() && free_blocks.begin()->second == mapping.size(); }

  ArenaKind kind;
  uint32_t id = 0;
  bool abandoned = false;
  UniqueFd fd = {};
  Mapping mapping = {};
  std::map<size_t, size_t> free_blocks = {};  // offset → length, never two adjacent
};

constexpr uint32_t kMaxArenas = 4096;  // a peer's table of mapped arenas has a slot for id % kMaxArenas

class ArenaPool : public std::enable_shared_from_this<ArenaPool> {
 public:
  // The callback informs peers that an arena has been freed; it runs without the pool's lock.
  explicit ArenaPool(std::function<void(uint32_t)> retire) : retire_(std::move(retire)) {}

  // Zeroed memory, aligned to 64 bytes (to a page from a page upwards).
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options, int numa_node = -1);
  void release(uint32_t arena, size_t offset, size_t length);
  // Where the memory lies; nowhere if it is in no arena that peers of this group (null: of any) may map for
  // this access.
  soft::ArenaLocation locate(const std::byte* addr, size_t length, uint32_t access,
                             const MemoryGroup* group) const;
  // Runs `visit` on the arena, if it still exists.
  void visit(uint32_t id, const std::function<void(const Arena&)>& visit) const;
  void stop_announcing();
  // The blocks of these arenas stay valid, but no byte of them is allocated again.
  void abandon(const std::set<uint32_t>& ids);

 private:
  using Arenas = std::vector<std::unique_ptr<Arena>>;
  Arena& grow(size_t bytes, const ArenaKind& kind);
  // Removes the empty arenas that will not be used again: their group has ended, or has another arena.
  Arenas take_unused();

  mutable std::mutex mutex_;
  Arenas arenas_;
  uint32_t last_id_ = 0;
  std::function<void(uint32_t)> retire_;
};

}  // namespace verbena::shm
