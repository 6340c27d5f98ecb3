#include "providers/shm/memory/arena.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "util/error.h"
#include "util/processor/numa.h"

namespace verbena::shm {
namespace {

constexpr size_t kArenaBytes = 64u << 20;
constexpr size_t kPage = 4096, kHugePage = 2u << 20, kAlignment = 64;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

PeerMapping mapping_for(uint32_t peer_access) {
  if (peer_access & (access::remote_write | access::remote_atomic)) return PeerMapping::writable;
  return peer_access & access::remote_read ? PeerMapping::read_only : PeerMapping::none;
}

// Returns zeroed memory to the kernel where whole pages are free, and clears the rest. The kernel takes no
// pages from memory that is sealed for reading, which is cleared instead.
void zero(const Arena& arena, size_t offset, size_t length) {
  const size_t page = arena.kind.huge_pages ? kHugePage : kPage;
  const size_t begin = round_up(offset, page), end = (offset + length) / page * page;
  std::byte* base = arena.mapping.data();
  if (begin >= end || arena.kind.peer_mapping == PeerMapping::read_only ||
      fallocate(arena.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin)) != 0) {
    std::memset(base + offset, 0, length);
    return;
  }
  std::memset(base + offset, 0, begin - offset);
  std::memset(base + end, 0, offset + length - end);
}

class ArenaBlock final : public Memory {
 public:
  ArenaBlock(std::shared_ptr<ArenaPool> pool, uint32_t arena, size_t offset, size_t length, std::byte* data,
             size_t size)
      : pool_(std::move(pool)), arena_(arena), offset_(offset), length_(length), data_(data), size_(size) {}
  ~ArenaBlock() override { pool_->release(arena_, offset_, length_); }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  std::shared_ptr<ArenaPool> pool_;
  uint32_t arena_;
  size_t offset_, length_;
  std::byte* data_;
  size_t size_;
};

// First fit; a block of a page or more starts on a page. Returns the offset, or SIZE_MAX.
size_t cut(Arena& arena, size_t length) {
  const size_t alignment = length >= kPage ? kPage : kAlignment;
  for (auto it = arena.free_blocks.begin(); it != arena.free_blocks.end(); ++it) {
    const size_t free_at = it->first, free_length = it->second;
    const size_t at = round_up(free_at, alignment), skipped = at - free_at;
    if (skipped + length > free_length) continue;
    arena.free_blocks.erase(it);
    if (skipped) arena.free_blocks[free_at] = skipped;
    if (free_length > skipped + length) arena.free_blocks[at + length] = free_length - skipped - length;
    return at;
  }
  return SIZE_MAX;
}

void give_back(Arena& arena, size_t offset, size_t length) {
  auto after = arena.free_blocks.lower_bound(offset);
  if (after != arena.free_blocks.end() && offset + length == after->first) {
    length += after->second;
    after = arena.free_blocks.erase(after);
  }
  if (after != arena.free_blocks.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  arena.free_blocks[offset] = length;
}

}  // namespace

ArenaKind::ArenaKind(const MemoryOptions& options, int node)
    : huge_pages(options.huge_pages),
      numa_node(node),
      peer_mapping(mapping_for(options.peer_access)),
      has_group(options.group != nullptr && peer_mapping != PeerMapping::none),
      group(has_group ? options.group : nullptr) {}

bool ArenaKind::operator==(const ArenaKind& other) const {
  return huge_pages == other.huge_pages && numa_node == other.numa_node &&
         peer_mapping == other.peer_mapping && has_group == other.has_group &&
         !group.owner_before(other.group) && !other.group.owner_before(group);
}

std::shared_ptr<Memory> ArenaPool::allocate(size_t bytes, const MemoryOptions& options, int numa_node) {
  if (bytes == 0) throw Error("invalid_argument", "allocate memory", "the length must be at least one byte");
  const size_t length = round_up(bytes, bytes >= kPage ? kPage : kAlignment);
  const ArenaKind kind(options, numa_node);
  const auto block = [&](const Arena& arena, size_t at) {
    return std::make_shared<ArenaBlock>(shared_from_this(), arena.id, at, length, arena.mapping.data() + at,
                                        bytes);
  };
  const std::lock_guard lock(mutex_);
  for (const auto& arena : arenas_) {
    if (arena->abandoned || arena->kind != kind) continue;
    if (const size_t at = cut(*arena, length); at != SIZE_MAX) return block(*arena, at);
  }
  Arena& arena = grow(length, kind);
  return block(arena, cut(arena, length));
}

Arena& ArenaPool::grow(size_t bytes, const ArenaKind& kind) {
  // Huge pages are taken from the system at once, so an arena of them is no larger than requested.
  const size_t size =
      kind.huge_pages ? round_up(bytes, kHugePage) : std::max(kArenaBytes, round_up(bytes, kPage));
  const auto taken = [this](uint32_t id) {
    return std::any_of(arenas_.begin(), arenas_.end(),
                       [id](const auto& arena) { return arena->id % kMaxArenas == id % kMaxArenas; });
  };
  if (arenas_.size() == kMaxArenas - 1) throw Error("limit_exceeded", "allocate memory", "too many arenas");
  // The id of a removed arena is not reused soon: a peer may still have the old arena under it.
  while (++last_id_ % kMaxArenas == 0 || taken(last_id_)) continue;
  std::unique_ptr<Arena> arena(new Arena{kind, last_id_});
  arena->fd = make_memfd("verbena-arena", size, kind.huge_pages);
  arena->mapping = Mapping(arena->fd.get(), size, true);
  seal(arena->fd.get(), kind.peer_mapping == PeerMapping::writable);
  if (kind.numa_node >= 0) prefer_node(arena->mapping.data(), size, kind.numa_node);
  arena->free_blocks[0] = size;
  arenas_.push_back(std::move(arena));
  return *arenas_.back();
}

void ArenaPool::release(uint32_t id, size_t offset, size_t length) {
  std::function<void(uint32_t)> retire;
  Arenas unused;
  {
    const std::lock_guard lock(mutex_);
    const auto is_it = [id](const auto& arena) { return arena->id == id; };
    Arena& arena = **std::find_if(arenas_.begin(), arenas_.end(), is_it);
    give_back(arena, offset, length);
    unused = take_unused();
    if (std::none_of(unused.begin(), unused.end(), is_it)) zero(arena, offset, length);
    retire = retire_;
  }
  for (const auto& arena : unused) {
    if (retire) retire(arena->id);
  }
}

ArenaPool::Arenas ArenaPool::take_unused() {
  Arenas unused;
  for (size_t i = arenas_.size(); i-- > 0;) {
    const Arena& arena = *arenas_[i];
    if (arena.abandoned || !arena.is_empty()) continue;
    const bool has_another = std::any_of(arenas_.begin(), arenas_.end(), [&](const auto& other) {
      return other.get() != &arena && !other->abandoned && other->kind == arena.kind;
    });
    if (!has_another && !arena.kind.has_ended()) continue;
    unused.push_back(std::move(arenas_[i]));
    arenas_.erase(arenas_.begin() + static_cast<ptrdiff_t>(i));
  }
  return unused;
}

soft::ArenaLocation ArenaPool::locate(const std::byte* addr, size_t length, uint32_t access,
                                      const MemoryGroup* group) const {
  const PeerMapping needed = mapping_for(access);
  if (needed == PeerMapping::none) return {};
  const std::lock_guard lock(mutex_);
  for (const auto& arena : arenas_) {
    const std::byte* base = arena->mapping.data();
    if (addr < base || addr >= base + arena->mapping.size()) continue;
    const auto offset = static_cast<size_t>(addr - base);
    if (arena->kind.peer_mapping < needed || length > arena->mapping.size() - offset) return {};
    if (group && arena->kind.group.lock().get() != group) return {};
    return {arena->id, offset};
  }
  return {};
}

void ArenaPool::visit(uint32_t id, const std::function<void(const Arena&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& arena : arenas_) {
    if (arena->id == id) return visit(*arena);
  }
}

void ArenaPool::abandon(const std::set<uint32_t>& ids) {
  const std::lock_guard lock(mutex_);
  for (const auto& arena : arenas_) arena->abandoned |= ids.contains(arena->id);
}

void ArenaPool::stop_announcing() {
  const std::lock_guard lock(mutex_);
  retire_ = nullptr;
}

}  // namespace verbena::shm
