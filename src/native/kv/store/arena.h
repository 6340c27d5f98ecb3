// The memory that items and the index live in: large chunks, which wires can expose, cut into pages for
// blocks of one size each, and into runs for the rest. Not thread-safe.
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
  // Gives zeroed memory of at least this length, aligned to pages; throws if there is none.
  using ChunkAllocator = std::function<ChunkMemory(size_t)>;
  static constexpr size_t kChunkBytes = 64u << 20;

  explicit Arena(ChunkAllocator allocate_chunk) : allocate_chunk_(std::move(allocate_chunk)) {}

  // Memory for `bytes`; its contents are whatever was there. Throws if the source has no more.
  Location allocate(size_t bytes);
  void free(Location location, size_t bytes);
  // Chunks for `bytes` in all, counting what is free; where they lie, those first that are used first.
  std::vector<std::span<std::byte>> reserve(size_t bytes);
  // How much a block of `bytes` really takes.
  static size_t block_bytes(size_t bytes);

  std::byte* at(Location location) const { return chunks_[chunk_of(location)].data + offset_of(location); }
  size_t used_bytes() const { return used_; }  // blocks in use
  size_t chunk_bytes() const { return total_; }
  // So much, in one piece, can be had without another chunk.
  size_t spare_bytes() const {
    return chunks_.empty() || chunks_.back().runs.empty() ? 0 : chunks_.back().runs.rbegin()->second;
  }
  size_t chunks() const { return chunks_.size(); }
  const ChunkMemory& chunk(size_t index) const { return chunks_[index]; }
  // The chunk that this lies in.
  std::span<std::byte> chunk_around(const void* at) const;

 private:
  static constexpr size_t kPageBytes = 64u << 10;
  static constexpr size_t kRunBytes = 4096;           // runs are multiples of it
  static constexpr size_t kLargestSmall = 16u << 10;  // longer blocks are runs
  static constexpr size_t kClasses = 64;
  static constexpr uint32_t kNone = 0xffffffff;

  // A page of blocks of one size. Free blocks hold the number of the next.
  struct Page {
    uint32_t used = 0, first_free = kNone, fresh = 0;  // blocks from `fresh` on were never used
    uint16_t size_class = 0;
    bool listed = false;  // it has room, and is in its class's list
  };
  struct Chunk : ChunkMemory {
    std::vector<Page> pages;
    std::map<size_t, size_t> runs;  // free ones: offset, length
  };

  static size_t class_of(size_t bytes);
  static size_t class_bytes(size_t size_class);
  Page& page_at(Location location) {
    return chunks_[chunk_of(location)].pages[offset_of(location) / kPageBytes];
  }
  Location take_run(size_t bytes, size_t alignment);
  void give_run(Location location, size_t bytes);
  void add_chunk(size_t bytes);

  const ChunkAllocator allocate_chunk_;
  std::vector<Chunk> chunks_;
  std::array<std::vector<Location>, kClasses> with_room_;  // pages, the last is the one in use
  size_t used_ = 0, total_ = 0;
};

}  // namespace verbena::kv
