// The memory layout of a keyspace that remote clients read: a directory of segments, segments of buckets,
// buckets of slots, items. Every 64-bit location or slot that a reader follows is stored atomically; the
// checksum of an item proves that it was read consistently.
// Depends on nothing else of the project.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::kv {

// A position in the store's memory: the chunk's number and the offset in it, in units of 16 bytes. 0: none.
using Location = uint64_t;
constexpr uint32_t kUnit = 16;
constexpr Location make_location(uint32_t chunk, uint64_t offset) {
  return uint64_t{chunk} << 32 | offset / kUnit;
}
constexpr uint32_t chunk_of(Location location) { return static_cast<uint32_t>(location >> 32); }
constexpr uint64_t offset_of(Location location) { return (location & 0xffffffff) * kUnit; }

enum class Type : uint8_t { none, string, hash, list, set, zset, dead = 255 };

struct ItemHeader {
  uint32_t checksum;  // CRC32C of everything after `recency`, seeded with the index's id
  uint32_t recency;   // of the last use, in the format of the eviction policy
  uint32_t key_bytes;
  uint32_t value_bytes;
  uint64_t expires_ms;  // Unix time; 0: never
  uint32_t hash;        // the lower half of the key's hash
  Type type;
  uint8_t sealed;  // 0: the checksum is not valid, and a reader must send a command
  uint16_t due;    // the lower 16 bits of the second under which the item waits to expire
};
static_assert(sizeof(ItemHeader) == 32 && offsetof(ItemHeader, key_bytes) == 8);
constexpr size_t kChecked = offsetof(ItemHeader, key_bytes);  // where the checksummed part begins
// Key and value follow the header. The value of an item that is not a string refers to an object that Python
// holds:
struct ObjectRef {
  uint64_t object;
  uint64_t bytes;  // its memory use, as Python reports it
};

// An index slot: 16 bits of the hash, and the item's location. 0: empty.
constexpr uint64_t make_index_slot(uint64_t hash, Location location) { return hash >> 48 << 48 | location; }
constexpr Location location_of(uint64_t slot) { return slot & 0xffff'ffff'ffff; }
constexpr uint16_t tag_of(uint64_t slot_or_hash) { return static_cast<uint16_t>(slot_or_hash >> 48); }

constexpr uint32_t kBucketSlots = 15;
constexpr uint8_t kNoOwner = 255;
struct alignas(128) Bucket {
  // depth and prefix describe the segment: how many bits of the hash above kBucketBits all its items share,
  // and which they are. A reader whose key has another prefix used an outdated directory.
  uint8_t depth;
  uint8_t owner;      // the database; kNoOwner: the database was flushed
  uint16_t index_id;  // the seed of the items' checksums: an item of another database does not match
  uint32_t prefix;
  uint64_t slots[kBucketSlots];
};
static_assert(sizeof(Bucket) == 128);

constexpr uint32_t kBucketBits = 7;
constexpr uint32_t kBuckets = 1 << kBucketBits;
struct Segment {
  Bucket buckets[kBuckets];
};
constexpr uint32_t kMaxDepth = 24;  // ItemHeader::hash has no more bits for splits

constexpr uint32_t bucket_of(uint64_t hash) { return static_cast<uint32_t>(hash) & (kBuckets - 1); }
constexpr uint32_t prefix_of(uint64_t hash, uint32_t depth) {
  return static_cast<uint32_t>(hash) >> kBucketBits & ((1u << depth) - 1);
}

}  // namespace verbena::kv
