// The allocator for items and the index: large chunks, which wires can expose, divided into pages of blocks
// of one size, and into runs for longer blocks. Not thread-safe.
// Depends on the memory layout only; a function that the caller passes provides the chunks.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kv/store/store_layout.h"

namespace verbena::kv {

struct ChunkMemory {
  std::byte* data = nullptr;
  size_t length = 0;
  std::shared_ptr<void> owner;
};

class Arena {
 public:
  // Returns zeroed memory of at least this length, aligned to pages. Throws Error if there is none.
  using ChunkAllocator = std::function<ChunkMemory(size_t)>;
  static constexpr size_t kChunkBytes = 64u << 20;

  explicit Arena(ChunkAllocator allocate_chunk) : allocate_chunk_(std::move(allocate_chunk)) {}

  // Allocates a block of at least `bytes`, with undefined contents. Throws Error or std::bad_alloc if there
  // is no memory; then nothing has changed.
  Location allocate(size_t bytes);
  // `bytes` must be what was passed to allocate(), or a length with the same block_bytes().
  void free(Location location, size_t bytes) noexcept;
  // Adds chunks until `bytes` are free in all. Returns where the free memory lies, in the order of its use.
  std::vector<std::span<std::byte>> reserve(size_t bytes);
  // The size of the block that a request for `bytes` takes.
  static size_t block_bytes(size_t bytes);

  std::byte* at(Location location) const { return chunks_[chunk_of(location)].data + offset_of(location); }
  size_t used_bytes() const { return used_; }  // blocks in use
  size_t chunk_bytes() const { return total_; }
  // The length of the last free run: one block of this size can be allocated without another chunk.
  size_t spare_bytes() const {
    return chunks_.empty() || chunks_.back().runs.empty() ? 0 : chunks_.back().runs.rbegin()->second;
  }
  size_t chunks() const { return chunks_.size(); }
  const ChunkMemory& chunk(size_t index) const { return chunks_[index]; }
  // The chunk that contains this address. Empty: none does.
  std::span<std::byte> chunk_around(const void* at) const;

 private:
  static constexpr size_t kPageBytes = 64u << 10;
  static constexpr size_t kRunBytes = 4096;           // the unit of runs
  static constexpr size_t kLargestSmall = 16u << 10;  // longer blocks are runs
  static constexpr size_t kClasses = 64;
  static constexpr uint32_t kNone = 0xffffffff;

  // A page of blocks of one size. A free block holds the index of the next free one.
  struct Page {
    uint32_t used = 0, first_free = kNone, fresh = 0;  // blocks from `fresh` on have never been used
    uint16_t size_class = 0;
    bool listed = false;  // it has room, and is in with_room_ of its class
  };
  struct Chunk : ChunkMemory {
    std::vector<Page> pages;
    std::map<size_t, size_t> runs;  // free runs: offset -> length
  };

  static size_t class_of(size_t bytes);
  static size_t class_bytes(size_t size_class);
  Page& page_at(Location location) {
    return chunks_[chunk_of(location)].pages[offset_of(location) / kPageBytes];
  }
  // A free run that runs does not have, because there was no memory for another entry. Lies in the run
  // itself.
  struct Stray {
    Location next = 0;
    size_t bytes = 0;
  };
  Location take_run(size_t bytes, size_t alignment);
  void give_run(Location location, size_t bytes) noexcept;
  void add_run(Location location, size_t bytes);
  void collect_strays() noexcept;
  void add_chunk(size_t bytes);

  const ChunkAllocator allocate_chunk_;
  std::vector<Chunk> chunks_;
  std::array<std::vector<Location>, kClasses> with_room_;  // pages; the last one is in use
  size_t used_ = 0, total_ = 0;
  Location strays_ = 0;  // the first one
};

}  // namespace verbena::kv
