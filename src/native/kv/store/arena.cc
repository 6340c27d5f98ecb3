#include "kv/store/arena.h"

#include <bit>
#include <cstring>
#include <new>

#include "util/error.h"
#include "util/prefetch.h"

namespace verbena::kv {

namespace {

constexpr size_t kLineBytes = 64;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

// Classes of 16, 32 … 256 bytes, then eight per doubling: at most an eighth of such a block is unused.
size_t Arena::class_of(size_t bytes) {
  if (bytes <= 256) return bytes == 0 ? 0 : (bytes - 1) / 16;
  const auto log = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;  // 2^log < bytes <= 2^(log+1)
  return 16 + (log - 8) * 8 + ((bytes - 1) >> (log - 3)) - 8;
}

size_t Arena::class_bytes(size_t size_class) {
  if (size_class < 16) return (size_class + 1) * 16;
  const size_t log = (size_class - 16) / 8 + 8;
  return ((size_class - 16) % 8 + 9) << (log - 3);
}

size_t Arena::block_bytes(size_t bytes) {
  return bytes <= kLargestSmall ? class_bytes(class_of(bytes)) : round_up(bytes, kRunBytes);
}

Location Arena::allocate(size_t bytes) {
  const size_t block = block_bytes(bytes);
  if (bytes > kLargestSmall) {
    const Location run = take_run(block, kRunBytes);
    used_ += block;
    return run;
  }
  const size_t size_class = class_of(bytes);
  auto& pages = with_room_[size_class];
  if (pages.empty()) {
    pages.reserve(1);
    const Location fresh = take_run(kPageBytes, kPageBytes);
    page_at(fresh) = {.size_class = static_cast<uint16_t>(size_class), .listed = true};
    pages.push_back(fresh);
  }
  const Location base = pages.back();
  Page& page = page_at(base);
  uint32_t index = page.first_free;
  if (index != kNone) {
    std::memcpy(&page.first_free, at(base) + index * block, sizeof page.first_free);
    if (page.first_free != kNone) {  // the next block was freed long ago and is not in the cache
      prefetch_for_write(at(base) + page.first_free * block);
      prefetch_for_write(at(base) + page.first_free * block + kLineBytes);
    }
  } else {
    index = page.fresh++;
  }
  ++page.used;
  if (page.first_free == kNone && (page.fresh + 1) * block > kPageBytes) {
    page.listed = false;
    pages.pop_back();
  }
  used_ += block;
  return base + index * block / kUnit;
}

void Arena::free(Location location, size_t bytes) noexcept {
  const size_t block = block_bytes(bytes);
  used_ -= block;
  if (bytes > kLargestSmall) return give_run(location, block);
  Page& page = page_at(location);
  const Location base = location - offset_of(location) % kPageBytes / kUnit;
  auto& pages = with_room_[page.size_class];
  const auto index = static_cast<uint32_t>((location - base) * kUnit / block);
  std::memcpy(at(location), &page.first_free, sizeof page.first_free);
  page.first_free = index;
  --page.used;
  if (!page.listed) {
    try {
      pages.insert(pages.begin() + (pages.empty() ? 0 : static_cast<std::ptrdiff_t>(pages.size()) - 1), base);
      page.listed = true;
    } catch (const std::bad_alloc&) {  // the next free block of the page lists it
    }
  }
  // The page in use is kept: otherwise a single key that is set and deleted would cost a page each time.
  if (page.used == 0 && (!page.listed || pages.back() != base)) {
    std::erase(pages, base);
    page.listed = false;
    give_run(base, kPageBytes);
  }
}

Location Arena::take_run(size_t bytes, size_t alignment) {
  if (strays_ != 0) [[unlikely]]
    collect_strays();
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t i = chunks_.size(); i-- > 0;) {
      Chunk& chunk = chunks_[i];
      for (auto run = chunk.runs.begin(); run != chunk.runs.end(); ++run) {
        const auto [start, length] = *run;
        const size_t aligned = round_up(start, alignment);
        if (aligned + bytes > start + length) continue;
        const size_t rest = start + length - aligned - bytes;
        if (aligned > start) {
          if (rest > 0) chunk.runs.emplace(aligned + bytes, rest);
          run->second = aligned - start;
        } else {
          auto node = chunk.runs.extract(run);
          node.key() = aligned + bytes;
          node.mapped() = rest;
          if (rest > 0) chunk.runs.insert(std::move(node));
        }
        return make_location(static_cast<uint32_t>(i), aligned);
      }
    }
    if (attempt == 0) add_chunk(bytes);
  }
  throw Error("no_memory", "store a value", "a new chunk was too short");
}

std::vector<std::span<std::byte>> Arena::reserve(size_t bytes) {
  size_t free_bytes = 0;
  for (const Chunk& chunk : chunks_) {
    for (const auto& [start, length] : chunk.runs) free_bytes += length;
  }
  while (free_bytes < bytes) {
    const size_t before = total_;
    add_chunk(kPageBytes);
    free_bytes += total_ - before;
  }
  std::vector<std::span<std::byte>> found;
  for (size_t i = chunks_.size(), left = bytes; i-- > 0 && left > 0;) {
    for (const auto& [start, length] : chunks_[i].runs) {
      const size_t taken = std::min(left, length);
      if (taken > 0) found.emplace_back(chunks_[i].data + start, taken);
      left -= taken;
    }
  }
  return found;
}

std::span<std::byte> Arena::chunk_around(const void* at) const {
  for (const Chunk& chunk : chunks_) {
    if (at >= chunk.data && at < chunk.data + chunk.length) return {chunk.data, chunk.length};
  }
  return {};
}

void Arena::give_run(Location location, size_t bytes) noexcept {
  try {
    add_run(location, bytes);
  } catch (const std::bad_alloc&) {
    const Stray stray{strays_, bytes};
    std::memcpy(this->at(location), &stray, sizeof stray);
    strays_ = location;
  }
}

void Arena::collect_strays() noexcept {
  for (Location next = std::exchange(strays_, 0); next != 0;) {
    Stray stray;
    std::memcpy(&stray, at(next), sizeof stray);
    give_run(std::exchange(next, stray.next), stray.bytes);
  }
}

void Arena::add_run(Location location, size_t bytes) {
  auto& runs = chunks_[chunk_of(location)].runs;
  auto at = runs.emplace(offset_of(location), bytes).first;
  if (const auto next = std::next(at); next != runs.end() && at->first + at->second == next->first) {
    at->second += next->second;
    runs.erase(next);
  }
  if (at != runs.begin()) {
    if (const auto before = std::prev(at); before->first + before->second == at->first) {
      before->second += at->second;
      runs.erase(at);
    }
  }
}

void Arena::add_chunk(size_t bytes) {
  const bool first = chunks_.empty();
  // Location 0 means "none", so the first page of the first chunk is never handed out.
  const size_t wanted = std::max(kChunkBytes, round_up(bytes + (first ? kPageBytes : 0), kPageBytes));
  const size_t start = first ? kPageBytes : 0;
  Chunk chunk;
  // First, because a chunk that has been allocated may already be known to remote readers.
  chunks_.reserve(chunks_.size() + 1);
  chunk.pages.resize(wanted / kPageBytes + 1);
  const auto run = chunk.runs.emplace(start, 0).first;
  static_cast<ChunkMemory&>(chunk) = allocate_chunk_(wanted);
  if (chunk.length / kPageBytes >= chunk.pages.size()) chunk.pages.resize(chunk.length / kPageBytes + 1);
  run->second = chunk.length / kRunBytes * kRunBytes - start;
  total_ += chunk.length;
  chunks_.push_back(std::move(chunk));
}

}  // namespace verbena::kv
