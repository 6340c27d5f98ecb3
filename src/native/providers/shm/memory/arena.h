// ArenaPool: the memory that peers map, a few large memfds ("arenas") and blocks cut from them. Used for
// set-up only. May not depend on links or queue pairs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "providers/shm/memory/memfd.h"
#include "providers/soft/context.h"
#include "verbs/provider.h"

namespace verbena::shm {

struct Arena {
  uint32_t id = 0;
  bool huge_pages = false;
  int numa_node = -1;
  bool abandoned = false;
  UniqueFd fd;
  Mapping mapping;
  std::map<size_t, size_t> free_blocks;  // offset → length, never two adjacent
};

constexpr uint32_t kMaxArenas = 1024;  // a peer's table of mapped arenas has a slot for id % kMaxArenas

class ArenaPool : public std::enable_shared_from_this<ArenaPool> {
 public:
  // The callbacks inform the peers; they run without the pool's lock.
  ArenaPool(std::function<void(const Arena&)> announce, std::function<void(uint32_t)> retire)
      : announce_(std::move(announce)), retire_(std::move(retire)) {}

  // Zeroed memory, aligned to 64 bytes (to a page from a page upwards).
  std::shared_ptr<Memory> allocate(size_t bytes, bool huge_pages, int numa_node = -1);
  void release(uint32_t arena, size_t offset, size_t length);
  soft::ArenaLocation locate(const std::byte* addr, size_t length) const;
  // Runs `visit` on each arena, for a new peer.
  void for_each(const std::function<void(const Arena&)>& visit) const;
  void stop_announcing();
  // Retires all current arenas: their blocks stay valid, but no byte of them is allocated again.
  void abandon_all();

 private:
  Arena& grow(size_t bytes, bool huge_pages, int numa_node);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  uint32_t last_id_ = 0;
  std::function<void(const Arena&)> announce_;
  std::function<void(uint32_t)> retire_;
};

}  // namespace verbena::shm
