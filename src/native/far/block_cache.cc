#include "far/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "util/error.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::far {
namespace {

constexpr uint64_t kRegisteredBytes = 4u << 20;  // of the cache at once: a wire may pin what is registered
constexpr uint64_t kMaxWriteBytes = 8u << 20;    // claimed at once by flush()
constexpr uint64_t kPrefetchBytes = 1u << 20;    // fetched at once
constexpr auto kSlice = std::chrono::milliseconds(50);

template <typename Map>
std::vector<uint64_t> sorted_keys(const Map& map) {
  std::vector<uint64_t> keys;
  keys.reserve(map.size());
  for (const auto& entry : map) keys.push_back(entry.first);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace

struct BlockCache::Mapped {
  explicit Mapped(uint64_t length) : bytes(length) {
    data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw Error("no_memory", "create a far.Array", "the cache cannot be allocated");
  }
  ~Mapped() { ::munmap(data, bytes); }

  void* data;
  const uint64_t bytes;
};

BlockCache::BlockCache(Remote& remote, const CacheOptions& options)
    : remote_(remote),
      length_(options.length),
      block_bytes_(options.block_bytes),
      capacity_(std::min(options.cache_bytes / options.block_bytes,
                         (options.length + options.block_bytes - 1) / options.block_bytes)),
      // One access claims at most half of the cache, so that two can proceed in parallel.
      group_(std::max<uint64_t>(1, options.cache_bytes / options.block_bytes / 2)),
      mapped_(std::make_shared<Mapped>(capacity_ * block_bytes_)),
      memory_(static_cast<std::byte*>(mapped_->data), mapped_->bytes, access::local_write, kRegisteredBytes) {
  if (capacity_ >= kNone) throw Error("invalid_argument", "create a far.Array", "block_bytes is too small");
}

void BlockCache::close() {
  {
    const Lock held(mutex_);
    is_closing_ = true;
    prefetches_.clear();
  }
  prefetching_.notify_all();
  if (prefetcher_.joinable()) prefetcher_.join();
  const auto held = remote_.node().lock();
  memory_.close();
}

Range BlockCache::within(uint64_t number, const Piece& piece) const {
  const uint64_t begin = number * block_bytes_;
  return {std::max(piece.offset, begin) - begin,
          std::min(piece.offset + piece.length, begin + block_bytes_) - begin};
}

// Recency

void BlockCache::unlink(uint32_t slot) {
  Block& block = blocks_[slot];
  (block.previous == kNone ? oldest_ : blocks_[block.previous].next) = block.next;
  (block.next == kNone ? newest_ : blocks_[block.next].previous) = block.previous;
}

void BlockCache::link_last(uint32_t slot) {
  Block& block = blocks_[slot];
  block.previous = newest_;
  block.next = kNone;
  (newest_ == kNone ? oldest_ : blocks_[newest_].next) = slot;
  newest_ = slot;
}

void BlockCache::touch(uint32_t slot) {
  if (slot == newest_) return;
  unlink(slot);
  link_last(slot);
}

// Contents

bool BlockCache::is_free(uint64_t number) const {
  const uint32_t slot = find(number);
  if (slot != kNone && blocks_[slot].is_claimed) return false;
  return std::none_of(claimed_ranges_.begin(), claimed_ranges_.end(),
                      [&](const Blocks& other) { return other.first <= number && number <= other.last; });
}

bool BlockCache::is_valid(const Piece& piece) const {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) {
    const uint32_t slot = find(number);
    if (slot == kNone || !blocks_[slot].valid.covers(within(number, piece)) || !is_free(number)) return false;
  }
  return true;
}

bool BlockCache::is_present(const Piece& piece) const {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) {
    if (find(number) == kNone || !is_free(number)) return false;
  }
  return true;
}

void BlockCache::copy_out(const Piece& piece) {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) {
    const uint32_t slot = find(number);
    const Range part = within(number, piece);
    std::memcpy(piece.data + (number * block_bytes_ + part.start - piece.offset), bytes(slot) + part.start,
                part.length());
    touch(slot);
  }
}

void BlockCache::copy_in(const Piece& piece) {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) {
    const uint32_t slot = find(number);
    const Range part = within(number, piece);
    std::memcpy(bytes(slot) + part.start, piece.data + (number * block_bytes_ + part.start - piece.offset),
                part.length());
    blocks_[slot].valid.add(part);
    blocks_[slot].dirty.add(part);
    touch(slot);
  }
}

CacheCounters BlockCache::counters() const {
  const Lock held(mutex_);
  CacheCounters counters{hits_, misses_, evictions_, 0, 0};
  for (const auto& [number, slot] : slots_) {
    counters.cached_bytes += block_length(number);
    counters.dirty_bytes += blocks_[slot].dirty.bytes();
  }
  return counters;
}

// Claims

bool BlockCache::wait(Lock& held, const Limits& limits, Result& result) {
  changed_.wait_for(held, kSlice);
  if (is_closing_) {
    result.interrupted = true;
    return false;
  }
  const uint64_t now = now_ns();
  if (now >= limits.deadline_ns) {
    result.timed_out = true;
    return false;
  }
  held.unlock();
  result.interrupted = !limits.keep_going();
  held.lock();
  return !result.interrupted;
}

// Whether all blocks are free, and there is room for those that are absent: `victims` are to be evicted.
bool BlockCache::may_acquire(const Numbers& numbers, Numbers& victims) const {
  uint64_t absent = 0;
  for (const uint64_t number : numbers) {
    if (!is_free(number)) return false;
    absent += find(number) == kNone;
  }
  const uint64_t unused = free_.size() + (capacity_ - blocks_.size());
  victims.clear();
  for (uint32_t slot = oldest_; slot != kNone && victims.size() + unused < absent;
       slot = blocks_[slot].next) {
    const uint64_t number = blocks_[slot].number;
    if (is_free(number) && !std::binary_search(numbers.begin(), numbers.end(), number)) {
      victims.push_back(number);
    }
  }
  return victims.size() + unused >= absent;
}

// Claims the blocks, which are sorted. Evicts others to make room for those that are absent.
bool BlockCache::acquire(Lock& held, const Numbers& numbers, const Limits& limits, Result& result) {
  Numbers victims;
  while (true) {
    while (!may_acquire(numbers, victims)) {
      if (!wait(held, limits, result)) return false;
    }
    const bool writes = std::any_of(victims.begin(), victims.end(),
                                    [&](uint64_t number) { return !blocks_[find(number)].dirty.empty(); });
    if (!writes) break;
    // Dirty victims are written first; then everything is looked at again.
    for (const uint64_t number : victims) blocks_[find(number)].is_claimed = true;
    held.unlock();
    Numbers sorted = victims;
    std::sort(sorted.begin(), sorted.end());
    result = write_back(sorted, limits);
    held.lock();
    release(victims);
    if (!is_whole(result)) return false;
  }
  for (const uint64_t number : victims) drop(number);
  evictions_ += victims.size();
  for (const uint64_t number : numbers) {
    uint32_t slot = find(number);
    if (slot == kNone) {
      if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(blocks_.size()));
        blocks_.emplace_back();
      }
      slot = free_.back();
      free_.pop_back();
      slots_[number] = slot;
      blocks_[slot].number = number;
      link_last(slot);
    }
    blocks_[slot].is_claimed = true;
  }
  return true;
}

void BlockCache::release(const Numbers& numbers) {
  for (const uint64_t number : numbers) blocks_[find(number)].is_claimed = false;
  changed_.notify_all();
}

bool BlockCache::acquire_range(Lock& held, Blocks blocks, Numbers& present, const Limits& limits,
                               Result& result) {
  const auto collect = [&] {
    present.clear();
    for (const auto& [number, slot] : slots_) {
      if (number < blocks.first || number > blocks.last) continue;
      if (blocks_[slot].is_claimed) return false;
      present.push_back(number);
    }
    return std::none_of(claimed_ranges_.begin(), claimed_ranges_.end(), [&](const Blocks& other) {
      return other.first <= blocks.last && blocks.first <= other.last;
    });
  };
  while (!collect()) {
    if (!wait(held, limits, result)) return false;
  }
  std::sort(present.begin(), present.end());
  claimed_ranges_.push_back(blocks);
  for (const uint64_t number : present) blocks_[find(number)].is_claimed = true;
  return true;
}

void BlockCache::release_range(Blocks blocks, const Numbers& present) {
  std::erase_if(claimed_ranges_, [&](const Blocks& other) { return other.first == blocks.first; });
  release(present);
}

// Transfers of claimed blocks: nobody else changes them, so their state is read without the lock. The table
// of slots is not, since others change it.

Result BlockCache::fetch(const Wanted& wanted, const Limits& limits) {
  std::vector<Piece> missing;
  {
    const Lock held(mutex_);
    for (const auto& [number, ranges] : wanted) {
      const uint32_t slot = find(number);
      for (const Range& range : ranges) {
        blocks_[slot].valid.each_gap(range, [&, number = number](const Range& gap) {
          missing.push_back({number * block_bytes_ + gap.start, bytes(slot) + gap.start, gap.length()});
        });
      }
    }
  }
  std::sort(missing.begin(), missing.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  const Result result = remote_.read(missing, memory_, limits);
  if (is_whole(result)) {
    const Lock held(mutex_);
    for (const auto& [number, ranges] : wanted) {
      for (const Range& range : ranges) blocks_[find(number)].valid.add(range);
    }
  }
  return result;
}

Result BlockCache::write_back(const Numbers& numbers, const Limits& limits) {
  std::vector<Piece> dirty;
  {
    const Lock held(mutex_);
    for (const uint64_t number : numbers) {
      const uint32_t slot = find(number);
      for (const Range& range : blocks_[slot].dirty) {
        dirty.push_back({number * block_bytes_ + range.start, bytes(slot) + range.start, range.length()});
      }
    }
  }
  const Result result = remote_.write(dirty, memory_, limits);
  if (is_whole(result)) {
    const Lock held(mutex_);
    for (const uint64_t number : numbers) blocks_[find(number)].dirty.clear();
  }
  return result;
}

// Access

bool BlockCache::read_hit(const Piece& piece) {
  const Lock held(mutex_, std::try_to_lock);
  if (!held || !is_valid(piece)) return false;
  copy_out(piece);
  ++hits_;
  return true;
}

bool BlockCache::goes_around(const Piece& piece) const {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  return blocks.last - blocks.first + 1 > group_;
}

Result BlockCache::read(std::span<const Piece> pieces, transport::Registration& memory,
                        const Limits& limits) {
  // Over shm a long READ is a copy, and the way through the cache would be a second one.
  constexpr uint64_t kLongBytes = 256u << 10;
  Result result;
  for (size_t done = 0; done < pieces.size() && is_whole(result);) {
    const Piece& piece = pieces[done];
    if (goes_around(piece) || (piece.length >= kLongBytes && remote_.is_local())) {
      if (!goes_around(piece) && read_hit(piece)) {
        ++done;
        continue;
      }
      result = read_around(piece, memory, limits);
      ++done;
    } else {
      done += read_some(pieces.subspan(done), pieces.size() == 1, limits, result);
    }
  }
  return result;
}

Result BlockCache::write(std::span<const Piece> pieces, transport::Registration& memory,
                         const Limits& limits) {
  Result result;
  for (size_t done = 0; done < pieces.size() && is_whole(result);) {
    if (goes_around(pieces[done])) {
      result = write_around(pieces[done], memory, limits);
      ++done;
    } else {
      done += write_some(pieces.subspan(done), limits, result);
    }
  }
  return result;
}

// Adds the blocks of a piece. False: the access would have more than its share of blocks.
bool BlockCache::add_wanted(Wanted& wanted, const Piece& piece, bool whole_blocks) const {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  uint64_t more = 0;
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) more += !wanted.contains(number);
  if (wanted.size() + more > group_) return false;
  for (uint64_t number = blocks.first; number <= blocks.last; ++number) {
    wanted[number].add(whole_blocks ? Range{0, block_length(number)} : within(number, piece));
  }
  return true;
}

// Reads the first pieces: as many as are valid, or can be fetched at once. Returns their number.
size_t BlockCache::read_some(std::span<const Piece> pieces, bool whole_blocks, const Limits& limits,
                             Result& result) {
  Lock held(mutex_);
  std::vector<size_t> missing;
  Wanted wanted;
  size_t count = 0;
  for (; count < pieces.size() && !goes_around(pieces[count]); ++count) {
    if (is_valid(pieces[count])) {
      copy_out(pieces[count]);
      ++hits_;
      continue;
    }
    if (!add_wanted(wanted, pieces[count], whole_blocks)) break;
    missing.push_back(count);
  }
  if (missing.empty()) return count;
  const Numbers numbers = sorted_keys(wanted);
  if (!acquire(held, numbers, limits, result)) return 0;
  held.unlock();
  result = fetch(wanted, limits);
  held.lock();
  if (is_whole(result)) {
    misses_ += missing.size();
    for (const size_t i : missing) copy_out(pieces[i]);
  }
  release(numbers);
  return is_whole(result) ? count : 0;
}

// Stores the first pieces: as many as have room at once. Returns their number.
size_t BlockCache::write_some(std::span<const Piece> pieces, const Limits& limits, Result& result) {
  Lock held(mutex_);
  size_t count = 0;
  for (; count < pieces.size() && !goes_around(pieces[count]) && is_present(pieces[count]); ++count) {
    copy_in(pieces[count]);
  }
  const size_t first = count;
  Wanted wanted;
  while (count < pieces.size() && !goes_around(pieces[count]) && add_wanted(wanted, pieces[count], false)) {
    ++count;
  }
  if (first == count) return count;
  const Numbers numbers = sorted_keys(wanted);
  if (!acquire(held, numbers, limits, result)) return first;
  for (size_t i = first; i < count; ++i) copy_in(pieces[i]);
  release(numbers);
  return count;
}

// Around the cache, but consistent with it.

Result BlockCache::read_around(const Piece& piece, transport::Registration& memory, const Limits& limits) {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  Result result;
  Numbers present;
  Lock held(mutex_);
  if (!acquire_range(held, blocks, present, limits, result)) return result;
  ++misses_;
  held.unlock();
  result = remote_.read({&piece, 1}, memory, limits);
  held.lock();
  for (const uint64_t number : present) {
    const uint32_t slot = find(number);
    const Range part = within(number, piece);
    for (const Range& dirty : blocks_[slot].dirty) {
      const Range both{std::max(part.start, dirty.start), std::min(part.stop, dirty.stop)};
      if (both.start >= both.stop) continue;
      std::memcpy(piece.data + (number * block_bytes_ + both.start - piece.offset), bytes(slot) + both.start,
                  both.length());
    }
  }
  release_range(blocks, present);
  return result;
}

Result BlockCache::write_around(const Piece& piece, transport::Registration& memory, const Limits& limits) {
  const Blocks blocks = blocks_of(piece.offset, piece.length);
  Result result;
  Numbers present;
  Lock held(mutex_);
  if (!acquire_range(held, blocks, present, limits, result)) return result;
  held.unlock();
  // The first and last block may hold dirty bytes outside of the piece.
  result = write_back(present, limits);
  if (is_whole(result)) result = remote_.write({&piece, 1}, memory, limits);
  held.lock();
  release_range(blocks, present);
  // Also after a failure: a part may have been written.
  for (const uint64_t number : present) {
    if (blocks_[find(number)].dirty.empty()) drop(number);
  }
  return result;
}

// Consistency

Result BlockCache::flush(const Limits& limits) {
  Numbers dirty;
  Lock held(mutex_);
  for (const auto& [number, slot] : slots_) {
    if (!blocks_[slot].dirty.empty()) dirty.push_back(number);
  }
  std::sort(dirty.begin(), dirty.end());
  const size_t most = std::max<uint64_t>(1, kMaxWriteBytes / block_bytes_);
  Result result;
  for (size_t first = 0; first < dirty.size() && is_whole(result); first += most) {
    Numbers some;
    const auto collect = [&] {
      some.clear();
      for (size_t i = first; i < std::min(dirty.size(), first + most); ++i) {
        if (!is_free(dirty[i])) return false;  // also one that is evicted now: it must have been written
        if (find(dirty[i]) != kNone) some.push_back(dirty[i]);
      }
      return true;
    };
    while (!collect()) {
      if (!wait(held, limits, result)) return result;
    }
    for (const uint64_t number : some) blocks_[find(number)].is_claimed = true;
    held.unlock();
    result = write_back(some, limits);
    held.lock();
    release(some);
  }
  return result;
}

Result BlockCache::invalidate(bool discard, const Limits& limits) {
  while (true) {
    Result result;
    if (!discard) result = flush(limits);
    if (!is_whole(result)) return result;
    Numbers present;
    Lock held(mutex_);
    const Blocks all{0, length_ / block_bytes_};
    if (!acquire_range(held, all, present, limits, result)) return result;
    release_range(all, present);
    const bool is_clean = std::all_of(present.begin(), present.end(),
                                      [&](uint64_t number) { return blocks_[find(number)].dirty.empty(); });
    if (!discard && !is_clean) continue;  // written since the flush
    for (const uint64_t number : present) {
      blocks_[find(number)].dirty.clear();
      drop(number);
    }
    return result;
  }
}

void BlockCache::drop(uint64_t number) {
  const uint32_t slot = find(number);
  unlink(slot);
  slots_.erase(number);
  blocks_[slot].valid.clear();
  free_.push_back(slot);
}

// Prefetching

void BlockCache::prefetch(Range range) {
  if (range.start >= range.stop || remote_.is_local()) return;
  range.stop = std::min(range.stop, range.start + prefetch_bytes());
  const Lock held(mutex_);
  if (is_closing_) return;
  prefetches_.push_back(range);
  if (!prefetcher_.joinable()) {
    prefetcher_ = std::thread([this] { or_end_process("prefetching", [this] { run_prefetches(); }); });
  }
  prefetching_.notify_one();
}

// Errors are left to the access that needs the bytes.
void BlockCache::run_prefetches() {
  name_thread("verbena-far");
  const std::function<bool()> keep_going = [this] { return !is_closing_.load(std::memory_order_relaxed); };
  const Limits limits{kNever, keep_going};
  Lock held(mutex_);
  while (true) {
    prefetching_.wait(held, [this] { return is_closing_ || !prefetches_.empty(); });
    if (is_closing_) return;
    Range& next = prefetches_.front();
    Wanted wanted;
    while (next.start < next.stop && wanted.size() * block_bytes_ < kPrefetchBytes &&
           wanted.size() < group_) {
      const uint64_t number = next.start / block_bytes_;
      const uint32_t slot = find(number);
      const Range whole{0, block_length(number)};
      if (slot == kNone || !blocks_[slot].valid.covers(whole)) wanted[number].add(whole);
      next.start = (number + 1) * block_bytes_;
    }
    if (next.start >= next.stop) prefetches_.pop_front();
    if (wanted.empty()) continue;
    const Numbers numbers = sorted_keys(wanted);
    Result result;
    if (!acquire(held, numbers, limits, result)) continue;
    held.unlock();
    fetch(wanted, limits);
    held.lock();
    release(numbers);
  }
}

}  // namespace verbena::far
