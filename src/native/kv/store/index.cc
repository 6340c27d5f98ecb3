#include "kv/store/index.h"

#include <cstring>
#include <new>

#include "util/error.h"
#include "util/fatal.h"

namespace verbena::kv {

Index::Index(Arena& arena, Location root, uint8_t owner, uint16_t id, Retire retire)
    : arena_(arena), retire_(std::move(retire)), id_(id), owner_(owner) {
  directory_at_ = arena_.allocate(sizeof(Location));
  directory_ = reinterpret_cast<Location*>(arena_.at(directory_at_));
  try {
    directory_[0] = new_segment(0, 0);
  } catch (...) {
    arena_.free(directory_at_, sizeof(Location));
    throw;
  }
  set_root(root);
}

// Stores the directory and its depth. A remote reader that sees only one of the two stores finds a segment
// with another prefix, and reads the root again.
void Index::set_root(Location root) {
  root_ = root;
  auto* place = reinterpret_cast<IndexRoot*>(arena_.at(root_));
  store(&place->directory, directory_at_);
  std::atomic_ref(place->depth).store(depth_, std::memory_order_release);
}

Index::~Index() {
  try {
    for (uint32_t i = 0; i < 1u << depth_; ++i) {
      const auto* segment = reinterpret_cast<Segment*>(arena_.at(directory_[i]));
      if (segment->buckets[0].prefix == i) retire_(directory_[i], sizeof(Segment));  // each segment once
    }
    retire_(directory_at_, sizeof(Location) << depth_);
  } catch (const std::bad_alloc&) {
    report("freeing an index", "its memory stays in use until the store restarts");
  }
}

uint64_t* Index::find(uint64_t hash, std::string_view key, uint32_t place) const {
  Bucket& bucket = segment_of(hash)->buckets[bucket_of(hash)];
  const auto is_it = [&](uint64_t slot) {
    if (tag_of(slot) != tag_of(hash) || slot == 0) return false;
    const auto* item = reinterpret_cast<const ItemHeader*>(arena_.at(location_of(slot)));
    return item->key_bytes == key.size() && std::memcmp(item + 1, key.data(), key.size()) == 0;
  };
  // The CPU cannot predict which slot matches, so the loop costs a misprediction. Trying the hinted slot
  // first avoids it.
  if (is_it(bucket.slots[place])) return &bucket.slots[place];
  for (uint64_t& slot : bucket.slots) {
    if (is_it(slot)) return &slot;
  }
  return nullptr;
}

uint64_t* Index::insert(uint64_t hash, Location item) {
  while (true) {
    Bucket& bucket = segment_of(hash)->buckets[bucket_of(hash)];
    for (uint64_t& slot : bucket.slots) {
      if (slot == 0) {
        store(&slot, make_index_slot(hash, item));
        ++size_;
        return &slot;
      }
    }
    split(prefix_of(hash, depth_));
  }
}

void Index::set_owner(uint8_t owner) {
  owner_ = owner;
  for (uint32_t i = 0; i < 1u << depth_; ++i) {
    auto* segment = reinterpret_cast<Segment*>(arena_.at(directory_[i]));
    if (segment->buckets[0].prefix != i) continue;
    for (Bucket& bucket : segment->buckets) {
      std::atomic_ref(bucket.owner).store(owner, std::memory_order_release);
    }
  }
}

Location Index::new_segment(uint32_t depth, uint32_t prefix) {
  const Location location = arena_.allocate(sizeof(Segment));
  auto* segment = reinterpret_cast<Segment*>(arena_.at(location));
  std::memset(static_cast<void*>(segment), 0, sizeof *segment);
  for (Bucket& bucket : segment->buckets) {
    bucket.depth = static_cast<uint8_t>(depth);
    bucket.owner = owner_;
    bucket.index_id = id_;
    bucket.prefix = prefix;
  }
  return location;
}

void Index::split(uint32_t prefix) {
  auto* old = reinterpret_cast<Segment*>(arena_.at(directory_[prefix]));
  const uint32_t depth = old->buckets[0].depth;
  if (depth == kMaxDepth) throw Error("no_memory", "store a key", "too many keys share a hash");
  if (depth == depth_) double_directory();
  const uint32_t low = prefix & ((1u << depth) - 1), high = low | 1u << depth;
  const Location location = new_segment(depth + 1, high);
  auto* fresh = reinterpret_cast<Segment*>(arena_.at(location));
  for (uint32_t b = 0; b < kBuckets; ++b) {
    uint32_t moved = 0;
    for (const uint64_t slot : old->buckets[b].slots) {
      if (slot == 0) continue;
      const auto* item = reinterpret_cast<const ItemHeader*>(arena_.at(location_of(slot)));
      if (item->hash >> kBucketBits >> depth & 1) fresh->buckets[b].slots[moved++] = slot;
    }
  }
  // Readers must be able to find the moved items in the new segment before they disappear from the old one.
  for (uint32_t i = high; i < 1u << depth_; i += 1u << (depth + 1)) store(&directory_[i], location);
  for (uint32_t b = 0; b < kBuckets; ++b) {
    Bucket& bucket = old->buckets[b];
    std::atomic_ref(bucket.depth).store(static_cast<uint8_t>(depth + 1), std::memory_order_release);
    for (uint64_t& slot : bucket.slots) {
      if (slot == 0) continue;
      const auto* item = reinterpret_cast<const ItemHeader*>(arena_.at(location_of(slot)));
      if (item->hash >> kBucketBits >> depth & 1) store(&slot, 0);
    }
  }
}

void Index::double_directory() {
  const size_t bytes = sizeof(Location) << depth_;
  const Location before = directory_at_, after = arena_.allocate(2 * bytes);
  auto* doubled = reinterpret_cast<Location*>(arena_.at(after));
  std::memcpy(doubled, directory_, bytes);
  std::memcpy(doubled + (size_t{1} << depth_), directory_, bytes);
  try {
    retire_(before, bytes);
  } catch (...) {
    arena_.free(after, 2 * bytes);
    throw;
  }
  directory_at_ = after;
  directory_ = doubled;
  ++depth_;
  set_root(root_);
}

}  // namespace verbena::kv
