// Finds a key in a store's memory by one-sided reads, as a state machine without I/O: each step names what to
// read next and takes what was read. The memory changes meanwhile: bytes whose checksum does not match are
// read again, a few times; then the caller must send the command to the server.
// Depends on the store's layout only; not on the transport.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kv/protocol/session_layout.h"

namespace verbena::kv {

// The layout of a store as the client received it. Its bytes are validated here.
class StoreMap {
 public:
  struct Place {
    uint64_t region = 0, offset = 0, room = 0;  // room: up to the chunk's end; 0: no such location
  };

  // False: the bytes are not a valid layout.
  bool load(std::string_view layout);
  const HashKey& hash_key() const { return hash_key_; }
  Location root(uint32_t database) const { return database < roots_.size() ? roots_[database] : 0; }
  Place place(Location location) const;

 private:
  HashKey hash_key_;
  std::vector<Location> roots_;
  std::vector<ChunkEntry> chunks_;
};

// The index directory of one database as read last.
struct Directory {
  uint32_t depth = 0;
  std::vector<Location> segments;
};

enum class Step : uint8_t {
  read,        // read `length()` bytes at `location()`
  found,       // see value()
  absent,      // there is no such key
  refresh,     // the directory is out of date: read it again, then begin()
  ask_server,  // undecided: send the command to the server
};

class Lookup {
 public:
  Lookup(std::string_view key, const HashKey& hash_key, uint32_t database)
      : key_(key), hash_(siphash(hash_key, key)), database_(static_cast<uint8_t>(database)) {}

  // Begins, or begins again after a refresh. `guess`: the expected length of the item.
  Step begin(const Directory& directory, const StoreMap& map, uint32_t guess, uint64_t now_ms);
  // Takes the bytes read at location(). `rest`: the end of the item, if it was read to another place, and its
  // CRC32C if known.
  Step take(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest = {},
            std::optional<uint32_t> rest_crc = {});

  std::string_view key() const { return key_; }
  Location location() const { return location_; }
  uint32_t length() const { return length_; }
  std::string_view value() const { return value_; }  // a view into the bytes given last
  // For an item, the number of bytes before its value; 0: a bucket is to be read.
  size_t value_offset() const { return in_bucket_ ? 0 : sizeof(ItemHeader) + key_.size(); }
  uint64_t item_bytes() const { return item_bytes_; }

 private:
  Step take_bucket(std::span<const std::byte> bytes, const StoreMap& map);
  Step take_item(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest,
                 std::optional<uint32_t> rest_crc);
  Step begin_item(const StoreMap& map);
  Step read_item(const StoreMap& map, uint64_t bytes);
  Step retry();

  static constexpr int kMaxTries = 4;
  std::string_view key_;
  const uint64_t hash_;
  const uint8_t database_;
  uint32_t guess_ = 0;
  uint64_t now_ms_ = 0;
  bool in_bucket_ = true;
  bool missed_ = false;      // the bucket did not contain the key; a second read confirms it
  bool is_resized_ = false;  // the item was longer than the guess, and is read again with its length
  int tries_ = 0;
  Location bucket_ = 0, location_ = 0;
  uint16_t index_id_ = 0;  // of the bucket read last
  uint32_t length_ = 0;
  uint64_t item_bytes_ = 0;
  uint32_t candidates_ = 0, candidate_ = 0;
  Location items_[kBucketSlots];
  std::string_view value_;
};

}  // namespace verbena::kv
