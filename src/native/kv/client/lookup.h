// Finding a key in a store's memory by reading it from afar, without I/O: tells what to read next, and is
// told what was there. The memory changes meanwhile: whatever does not prove itself is read again, a few
// times, and then the server is asked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kv/protocol/session_layout.h"

namespace verbena::kv {

// The map of a store, as far as a client knows it. Bytes off the wire are checked here.
class StoreMap {
 public:
  struct Place {
    uint64_t region = 0, offset = 0, room = 0;  // room: up to the end of the chunk; 0: there is no such place
  };

  // False: this is no layout of ours.
  bool load(std::string_view layout);
  const HashKey& hash_key() const { return hash_key_; }
  Location root(uint32_t database) const { return database < roots_.size() ? roots_[database] : 0; }
  Place place(Location location) const;

 private:
  HashKey hash_key_;
  std::vector<Location> roots_;
  std::vector<ChunkEntry> chunks_;
};

// The directory of one database, as it was read last.
struct Directory {
  uint32_t depth = 0;
  std::vector<Location> segments;
};

enum class Step : uint8_t {
  read,     // `location` and `length` say what
  found,    // `value`
  absent,   // there is no such key
  refresh,  // the directory is out of date
  ask,      // the server knows better
};

class Lookup {
 public:
  Lookup(std::string_view key, const HashKey& hash_key, uint32_t database)
      : key_(key), hash_(siphash(hash_key, key)), database_(static_cast<uint8_t>(database)) {}

  // To begin, and after a refresh. `guess`: how long the item may be.
  Step begin(const Directory& directory, const StoreMap& map, uint32_t guess, uint64_t now_ms);
  // What was read at `location`. `rest`: the end of it, where it was read to another place, and its CRC32C,
  // if that is known.
  Step take(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest = {},
            std::optional<uint32_t> rest_crc = {});

  std::string_view key() const { return key_; }
  Location location() const { return location_; }
  uint32_t length() const { return length_; }
  std::string_view value() const { return value_; }  // within the bytes given last
  // Is it an item, of which this much comes before its value? 0: it is not.
  size_t before_value() const { return in_bucket_ ? 0 : sizeof(ItemHeader) + key_.size(); }
  uint64_t item_bytes() const { return item_bytes_; }

 private:
  Step take_bucket(std::span<const std::byte> bytes, const StoreMap& map);
  Step take_item(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest,
                 std::optional<uint32_t> rest_crc);
  Step read_item(const StoreMap& map, uint64_t bytes);
  Step again();

  static constexpr int kTries = 4;
  std::string_view key_;
  const uint64_t hash_;
  const uint8_t database_;
  uint32_t guess_ = 0;
  uint64_t now_ms_ = 0;
  bool in_bucket_ = true;
  bool missed_ = false;  // the bucket did not have it; a second look makes it certain
  int tries_ = 0;
  Location bucket_ = 0, location_ = 0;
  uint32_t length_ = 0;
  uint64_t item_bytes_ = 0;
  uint32_t candidates_ = 0, candidate_ = 0;
  Location items_[kBucketSlots];
  std::string_view value_;
};

}  // namespace verbena::kv
