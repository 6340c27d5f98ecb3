// The index from keys to items: extendible hashing. A full bucket splits its segment in two, so growing never
// stops the server for longer than it takes to move one segment's items. Not thread-safe, but remote readers
// may read it at any time: each 64-bit location or slot that they follow is stored atomically, with release
// order, after what it refers to.
// Depends on the arena only; the caller supplies the hashes.
#pragma once

#include <atomic>
#include <string_view>

#include "kv/store/arena.h"
#include "util/prefetch.h"

namespace verbena::kv {

// Where remote readers start.
struct IndexRoot {
  Location directory;  // 1 << depth locations of segments
  uint32_t depth;
  uint32_t unused;
};

class Index {
 public:
  // Frees a block that remote readers may still be reading, so not before they are done.
  using Retire = std::function<void(Location, size_t)>;
  // `root`: the IndexRoot from which readers find this index; it must outlive the index. `id`: see id().
  Index(Arena& arena, Location root, uint8_t owner, uint16_t id, Retire retire);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // The slot of the item with this key. Null: there is none. `place`: a hint, the position in its bucket that
  // is tried first.
  uint64_t* find(uint64_t hash, std::string_view key, uint32_t place = 0) const;
  // Prefetch for a later find(): call prefetch_bucket() first and, when the bucket has arrived,
  // prefetch_item(), which returns the `place` for find().
  void prefetch_bucket(uint64_t hash) const {
    const auto* bucket = reinterpret_cast<const std::byte*>(&segment_of(hash)->buckets[bucket_of(hash)]);
    prefetch(bucket);
    prefetch(bucket + 64);
  }
  uint32_t prefetch_item(uint64_t hash) const {
    const Bucket& bucket = segment_of(hash)->buckets[bucket_of(hash)];
    for (uint32_t place = 0; place < kBucketSlots; ++place) {
      const uint64_t slot = bucket.slots[place];
      if (tag_of(slot) != tag_of(hash) || slot == 0) continue;
      const std::byte* item = arena_.at(location_of(slot));
      prefetch(item);
      prefetch(item + 64);
      return place;
    }
    return 0;
  }
  // Adds an item whose key is not in the index. Returns its slot. Throws Error or std::bad_alloc if too many
  // keys share a hash or there is no memory; then the index has the same items.
  uint64_t* insert(uint64_t hash, Location item);
  static void replace(uint64_t* slot, uint64_t hash, Location item) {
    store(slot, make_index_slot(hash, item));
  }
  void erase(uint64_t* slot) {
    store(slot, 0);
    --size_;
  }
  size_t size() const { return size_; }
  // Seeds the checksums of this index's items. No other index of the keyspace has this id, and it stays when
  // the owner changes, so that SWAPDB need not touch the items.
  uint16_t id() const { return id_; }
  Location root() const { return root_; }
  void set_root(Location root);
  // Changes the database that owns the buckets: readers that look for the former owner find nothing.
  void set_owner(uint8_t owner);

  // Calls `function` with the slots of about `count` items, from `cursor` on. Returns the next cursor, 0 at
  // the end. An item that exists during the whole scan is visited, even if segments split meanwhile; it may
  // be visited twice. The function may erase the slot.
  template <typename Function>
  uint64_t scan(uint64_t cursor, size_t count, Function function) const;
  // Visits the items of one bucket, which `bits` select: for sampling.
  template <typename Function>
  void each_in_bucket(uint64_t bits, Function function) const {
    visit(segment_of(bits)->buckets[bits >> 57], function);
  }
  // Visits the items whose hash may be this one. The caller must compare the rest of the hash.
  template <typename Function>
  void each_like(uint64_t hash, Function function) const {
    visit(segment_of(hash)->buckets[bucket_of(hash)], [&](uint64_t* slot) {
      if (tag_of(*slot) == tag_of(hash)) function(slot);
    });
  }

 private:
  static void store(uint64_t* argument, uint64_t value) {
    std::atomic_ref(*argument).store(value, std::memory_order_release);
  }
  Segment* segment_of(uint64_t hash) const {
    return reinterpret_cast<Segment*>(arena_.at(directory_[prefix_of(hash, depth_)]));
  }
  template <typename Function>
  static void visit(Bucket& bucket, Function function) {
    for (uint64_t& slot : bucket.slots) {
      if (slot) function(&slot);
    }
  }
  Location new_segment(uint32_t depth, uint32_t prefix);
  void split(uint32_t prefix);
  void double_directory();

  Arena& arena_;
  const Retire retire_;
  const uint16_t id_;
  uint8_t owner_;
  Location root_;
  Location directory_at_;
  Location* directory_;  // the memory at directory_at_
  uint32_t depth_ = 0;
  size_t size_ = 0;
};

// A cursor is a position in the space of hashes, ordered by their reversed prefixes, and a bucket: the halves
// of a segment that splits stay side by side where the segment was.
template <typename Function>
uint64_t Index::scan(uint64_t cursor, size_t count, Function function) const {
  const auto reversed = [](uint32_t bits) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < kMaxDepth; ++i) result |= (bits >> i & 1) << (kMaxDepth - 1 - i);
    return result;
  };
  size_t seen = 0;
  uint32_t place = static_cast<uint32_t>(cursor >> kBucketBits) & ((1u << kMaxDepth) - 1);
  uint32_t bucket = static_cast<uint32_t>(cursor) & (kBuckets - 1);
  // In sparse segments the number of visited buckets is limited as well, since empty buckets cost time, too.
  for (size_t visited = 0; seen < count && visited < count * 10 + kBuckets; ++visited) {
    const uint32_t prefix = reversed(place) & ((1u << depth_) - 1);
    auto* segment = reinterpret_cast<Segment*>(arena_.at(directory_[prefix]));
    const uint32_t depth = segment->buckets[0].depth;
    visit(segment->buckets[bucket], [&](uint64_t* slot) {
      ++seen;
      function(slot);
    });
    if (++bucket == kBuckets) {
      bucket = 0;
      const uint32_t size = 1u << (kMaxDepth - depth);
      place = place / size * size + size;
      if (place >= 1u << kMaxDepth) return 0;
    }
  }
  return uint64_t{place} << kBucketBits | bucket;
}

}  // namespace verbena::kv
