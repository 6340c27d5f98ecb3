// A write-back cache of an array's remote bytes, in blocks, with a fixed capacity; the least recently used
// block is evicted first. Each block knows its valid bytes and, of these, the dirty ones. State changes under
// one lock; transfers run without it. A transfer first claims all its blocks at once, and other accesses to
// them wait: so no thread waits for a claim while it holds one, and no fetch overtakes a write. Thread-safe.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "far/ranges.h"
#include "far/remote.h"

namespace verbena::far {

struct CacheOptions {
  uint64_t length = 0;  // of the array
  uint64_t cache_bytes = 0, block_bytes = 0;
};

struct CacheCounters {
  uint64_t hits, misses, evictions, cached_bytes, dirty_bytes;
};

class BlockCache {
 public:
  BlockCache(Remote& remote, const CacheOptions& options);
  ~BlockCache() { close(); }

  // One piece: the blocks of its missing bytes are fetched whole. Several: only their missing bytes are.
  // `memory` is the pieces'; accesses longer than half of the cache go around it.
  Result read(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits);
  // Stores the pieces in the cache, in order; they are written when their blocks are evicted, or by flush().
  Result write(std::span<const Piece> pieces, transport::Registration& memory, const Limits& limits);
  // Copies a piece if all of it is valid, and returns whether it did. Never waits.
  bool read_hit(const Piece& piece);
  // Starts to fetch the blocks of this range in the background, at most half of the cache.
  void prefetch(Range range);
  Result flush(const Limits& limits);
  // Drops all blocks, after a flush; with `discard`, drops dirty bytes instead.
  Result invalidate(bool discard, const Limits& limits);
  CacheCounters counters() const;
  // Ends prefetching. The cache must not be used afterwards.
  void close();
  uint64_t prefetch_bytes() const { return group_ * block_bytes_; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Block {
    uint64_t number = 0;
    uint32_t previous = kNone, next = kNone;  // by the time of use
    bool is_claimed = false;
    Ranges valid, dirty;  // offsets in the block
  };
  struct Mapped;  // the memory of the slots
  using Numbers = std::vector<uint64_t>;
  using Wanted = std::unordered_map<uint64_t, Ranges>;  // by the number of the block
  using Lock = std::unique_lock<std::mutex>;

  struct Blocks {
    uint64_t first, last;
  };
  Blocks blocks_of(uint64_t offset, uint64_t length) const {
    return {offset / block_bytes_, (offset + length - 1) / block_bytes_};
  }
  Range within(uint64_t number, const Piece& piece) const;
  uint64_t block_length(uint64_t number) const {
    return std::min(block_bytes_, length_ - number * block_bytes_);
  }
  std::byte* bytes(uint32_t slot) const { return memory_.data() + uint64_t{slot} * block_bytes_; }

  // Under the lock.
  uint32_t find(uint64_t number) const {
    const auto found = slots_.find(number);
    return found == slots_.end() ? kNone : found->second;
  }
  void touch(uint32_t slot);
  void unlink(uint32_t slot);
  void link_last(uint32_t slot);
  bool is_valid(const Piece& piece) const;
  bool is_present(const Piece& piece) const;
  bool is_free(uint64_t number) const;
  void copy_out(const Piece& piece);
  void copy_in(const Piece& piece);
  void drop(uint64_t number);
  bool add_wanted(Wanted& wanted, const Piece& piece, bool whole_blocks) const;
  void release(const Numbers& numbers);
  // Waits for a change. False: the access ends, for the reason in `result`.
  bool wait(Lock& held, const Limits& limits, Result& result);

  // The blocks that an access claimed: they are present, with a slot each.
  bool acquire(Lock& held, const Numbers& numbers, const Limits& limits, Result& result);
  bool may_acquire(const Numbers& numbers, Numbers& victims) const;
  // Claims the blocks that are present in this range, and the range itself.
  bool acquire_range(Lock& held, Blocks blocks, Numbers& present, const Limits& limits, Result& result);
  void release_range(Blocks blocks, const Numbers& present);

  // Without the lock, on claimed blocks.
  Result fetch(const Wanted& wanted, const Limits& limits);
  Result write_back(const Numbers& numbers, const Limits& limits);

  bool goes_around(const Piece& piece) const;
  Result read_around(const Piece& piece, transport::Registration& memory, const Limits& limits);
  Result write_around(const Piece& piece, transport::Registration& memory, const Limits& limits);
  size_t read_some(std::span<const Piece> pieces, bool whole_blocks, const Limits& limits, Result& result);
  size_t write_some(std::span<const Piece> pieces, const Limits& limits, Result& result);
  void run_prefetches();

  Remote& remote_;
  const uint64_t length_, block_bytes_, capacity_, group_;
  const std::shared_ptr<Mapped> mapped_;
  transport::Registration memory_;  // of the slots

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint64_t, uint32_t> slots_;  // by the number of the block
  std::deque<Block> blocks_;                      // by slot; grows to the capacity
  std::vector<uint32_t> free_;                    // slots without a block
  uint32_t oldest_ = kNone, newest_ = kNone;
  std::vector<Blocks> claimed_ranges_;
  uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
  std::atomic<bool> is_closing_{false};
  std::deque<Range> prefetches_;
  std::condition_variable prefetching_;
  std::thread prefetcher_;
};

}  // namespace verbena::far
