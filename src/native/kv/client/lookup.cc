#include "kv/client/lookup.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "util/crc32c/crc32c.h"

namespace verbena::kv {

bool StoreMap::load(std::string_view layout) {
  LayoutHeader header;
  if (layout.size() < sizeof header) return false;
  std::memcpy(&header, layout.data(), sizeof header);
  layout.remove_prefix(sizeof header);
  const uint64_t expected =
      uint64_t{header.databases} * sizeof(Location) + uint64_t{header.chunks} * sizeof(ChunkEntry);
  if (header.version != kLayoutVersion || layout.size() != expected) return false;
  hash_key_ = header.hash_key;
  roots_.resize(header.databases);
  chunks_.resize(header.chunks);
  if (!roots_.empty()) std::memcpy(roots_.data(), layout.data(), roots_.size() * sizeof(Location));
  layout.remove_prefix(roots_.size() * sizeof(Location));
  if (!chunks_.empty()) std::memcpy(chunks_.data(), layout.data(), chunks_.size() * sizeof(ChunkEntry));
  return true;
}

StoreMap::Place StoreMap::place(Location location) const {
  if (location == 0 || chunk_of(location) >= chunks_.size()) return {};
  const ChunkEntry& chunk = chunks_[chunk_of(location)];
  const uint64_t offset = offset_of(location);
  return offset < chunk.length ? Place{chunk.region, offset, chunk.length - offset} : Place{};
}

Step Lookup::begin(const Directory& directory, const StoreMap& map, uint32_t guess, uint64_t now_ms) {
  if (++tries_ > kMaxTries) return Step::ask_server;
  guess_ = guess;
  now_ms_ = now_ms;
  in_bucket_ = true;
  missed_ = false;
  if (directory.segments.empty()) return Step::refresh;
  const Location segment = directory.segments[prefix_of(hash_, directory.depth)];
  bucket_ = segment + bucket_of(hash_) * sizeof(Bucket) / kUnit;
  if (map.place(bucket_).room < sizeof(Bucket)) return Step::refresh;
  location_ = bucket_;
  length_ = sizeof(Bucket);
  return Step::read;
}

Step Lookup::retry() {
  if (++tries_ > kMaxTries) return Step::ask_server;
  in_bucket_ = true;
  missed_ = false;
  location_ = bucket_;
  length_ = sizeof(Bucket);
  return Step::read;
}

Step Lookup::take(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest,
                  std::optional<uint32_t> rest_crc) {
  return in_bucket_ ? take_bucket(bytes, map) : take_item(bytes, map, rest, rest_crc);
}

Step Lookup::take_bucket(std::span<const std::byte> bytes, const StoreMap& map) {
  Bucket bucket;
  std::memcpy(&bucket, bytes.data(), sizeof bucket);
  if (bucket.depth > kMaxDepth || bucket.owner != database_ ||
      bucket.prefix != prefix_of(hash_, bucket.depth)) {
    return Step::refresh;
  }
  index_id_ = bucket.index_id;
  candidates_ = candidate_ = 0;
  // Branch-free, since branches would be mispredicted: XOR with the tag leaves only the location if the tag
  // of the slot matches, and otherwise a value above every location.
  for (const uint64_t slot : bucket.slots) {
    const Location location = slot ^ make_index_slot(hash_, 0);
    items_[candidates_] = location;
    candidates_ += location - 1 < location_of(~uint64_t{0});
  }
  if (candidates_ == 0) {
    // While a segment splits, an item can move away between the reads of the header and of its slot. A second
    // read with an unchanged header proves that there was no split.
    if (missed_) return Step::absent;
    missed_ = true;
    return Step::read;
  }
  missed_ = false;
  return begin_item(map);
}

Step Lookup::begin_item(const StoreMap& map) {
  is_resized_ = false;
  return read_item(map, guess_);
}

Step Lookup::read_item(const StoreMap& map, uint64_t bytes) {
  location_ = items_[candidate_];
  const uint64_t room = map.place(location_).room;
  if (room < sizeof(ItemHeader)) return Step::ask_server;  // a chunk that the layout does not list
  length_ = static_cast<uint32_t>(std::min(std::max<uint64_t>(bytes, sizeof(ItemHeader)), room));
  in_bucket_ = false;
  return Step::read;
}

Step Lookup::take_item(std::span<const std::byte> bytes, const StoreMap& map, std::span<const std::byte> rest,
                       std::optional<uint32_t> rest_crc) {
  ItemHeader item;
  std::memcpy(&item, bytes.data(), sizeof item);
  if (item.key_bytes != key_.size()) {
    if (++candidate_ < candidates_) return begin_item(map);
    return retry();
  }
  if (item.type != Type::string || item.sealed != 1) return Step::ask_server;
  item_bytes_ = sizeof item + uint64_t{item.key_bytes} + item.value_bytes;
  if (item_bytes_ > map.place(location_).room) return retry();
  // Longer than one READ may be: no store has such an item, but a hostile one may claim it.
  if (item_bytes_ > std::numeric_limits<uint32_t>::max()) return Step::ask_server;
  const uint64_t have = bytes.size() + rest.size();
  if (item_bytes_ > have) {
    if (std::exchange(is_resized_, true)) return retry();  // replaced again by a longer one
    return read_item(map, item_bytes_);
  }
  if (!rest.empty() && item_bytes_ != have)
    return retry();  // the item was replaced after its length was read
  const auto* key = reinterpret_cast<const char*>(bytes.data()) + sizeof item;
  const uint64_t first = rest.empty() ? item_bytes_ : bytes.size();
  uint32_t crc = crc32c(index_id_, bytes.data() + kChecked, first - kChecked);
  crc = rest_crc ? combine_crc32c(crc, *rest_crc, rest.size()) : crc32c(crc, rest.data(), rest.size());
  if (crc != item.checksum) return retry();
  if (std::memcmp(key, key_.data(), key_.size()) != 0) {
    if (++candidate_ < candidates_) return begin_item(map);
    return retry();
  }
  // The key has expired, or the clocks of the two hosts may differ: the server decides.
  if (item.expires_ms != 0 && (now_ms_ == 0 || item.expires_ms <= now_ms_)) return Step::ask_server;
  value_ = {rest.empty() ? key + item.key_bytes : reinterpret_cast<const char*>(rest.data()),
            item.value_bytes};
  return Step::found;
}

}  // namespace verbena::kv
