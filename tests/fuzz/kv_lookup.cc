// A one-sided reader over hostile memory: the layout, the root, the directory, buckets and items are the
// fuzzer's bytes, and may change between two reads. A lookup ends after a bounded number of reads, reads only
// within the chunks that the layout lists, and returns only bytes that it has read.
#include "fuzz.h"
#include "kv/client/lookup.h"
#include "kv/store/index.h"
#include "kv/store/item.h"

using namespace verbena::kv;

namespace {

constexpr uint64_t kNowMs = 1'000'000;
constexpr std::string_view kKey = "key";

// One chunk with a root, a directory of two segments, the bucket of the key and an item for it.
struct Memory {
  static constexpr size_t kRoot = 64, kDirectory = 128, kSegment = 256, kItem = kSegment + sizeof(Segment);
  explicit Memory(const HashKey& hash_key) : bytes(kItem + 256) {
    const uint64_t hash = siphash(hash_key, kKey);
    put(kRoot, IndexRoot{make_location(0, kDirectory), 1, 0});
    for (size_t i = 0; i < 2; ++i) put(kDirectory + i * sizeof(Location), make_location(0, kSegment));
    Bucket bucket{};
    bucket.index_id = 7;
    bucket.slots[3] = make_index_slot(hash, make_location(0, kItem));
    put(kSegment + bucket_of(hash) * sizeof bucket, bucket);
    ItemHeader item{};
    item.key_bytes = static_cast<uint32_t>(kKey.size());
    item.value_bytes = 5;
    item.hash = static_cast<uint32_t>(hash);
    item.type = Type::string;
    put(kItem, item);
    std::memcpy(bytes.data() + kItem + sizeof item, "keyvalue", 8);
    put_checksum(*reinterpret_cast<ItemHeader*>(bytes.data() + kItem), 7);
  }
  template <typename T>
  void put(size_t at, const T& value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  // Overwrites some bytes, most often where a reader looks.
  void change(fuzz::Input& input, uint64_t hash) {
    const size_t places[] = {kRoot, kDirectory, kSegment + bucket_of(hash) * sizeof(Bucket), kItem};
    const uint8_t where = input.byte();
    const size_t at = where < 128 ? places[where % std::size(places)] + where / 4 : input.number<uint16_t>();
    const auto fresh = input.take(1 + input.byte() % 16);
    if (!fresh.empty() && at < bytes.size()) {
      std::memcpy(bytes.data() + at, fresh.data(), std::min(fresh.size(), bytes.size() - at));
    }
    auto& item = *reinterpret_cast<ItemHeader*>(bytes.data() + kItem);
    if (input.byte() & 1 && kItem + item_bytes(item) <= bytes.size()) put_checksum(item, 7);
  }

  fuzz::Bytes bytes;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t choice = input.byte();
  const HashKey hash_key{};
  Memory memory(hash_key);
  const uint64_t hash = siphash(hash_key, kKey);

  fuzz::Bytes layout;
  const auto append = [&](const auto& value) {
    const auto view = std::as_bytes(std::span(&value, 1));
    layout.insert(layout.end(), view.begin(), view.end());
  };
  append(LayoutHeader{kLayoutVersion, 1, 1, 0, hash_key});
  append(make_location(0, Memory::kRoot));
  append(ChunkEntry{42, memory.bytes.size()});
  if (choice & 1) {
    layout[input.byte() % layout.size()] = static_cast<std::byte>(input.byte());
    layout.resize(layout.size() - std::min<size_t>(layout.size(), input.byte() % 4));
  }
  StoreMap map;
  if (!map.load({reinterpret_cast<const char*>(layout.data()), layout.size()})) return 0;

  // The bytes at a location; empty: the wire refuses the READ, as OneSidedReader::read_at() does.
  const auto read = [&](Location at, size_t length) -> fuzz::Bytes {
    const StoreMap::Place place = map.place(at);
    if (place.room < length || place.offset + length > memory.bytes.size()) return {};
    return {memory.bytes.begin() + static_cast<ptrdiff_t>(place.offset),
            memory.bytes.begin() + static_cast<ptrdiff_t>(place.offset + length)};
  };
  Directory directory;
  const auto refresh = [&] {
    const fuzz::Bytes found = read(map.root(0), sizeof(IndexRoot));
    if (found.empty()) return false;
    IndexRoot root;
    std::memcpy(&root, found.data(), sizeof root);
    if (root.depth > kMaxDepth) return false;
    const size_t length = sizeof(Location) << root.depth;
    const fuzz::Bytes segments = read(root.directory, length);
    if (segments.size() != length) return false;
    directory = {root.depth, std::vector<Location>(size_t{1} << root.depth)};
    std::memcpy(directory.segments.data(), segments.data(), length);
    return true;
  };

  Lookup lookup(kKey, map.hash_key(), 0);
  const uint32_t guess = choice & 2 ? 32 + input.byte() : 64;
  fuzz::Bytes head, rest;
  Step step = Step::refresh;
  for (int rounds = 0; step == Step::refresh || step == Step::read; ++rounds) {
    REQUIRE(rounds < 200);
    if (!input.empty()) memory.change(input, hash);
    if (step == Step::refresh) {
      if (!refresh()) return 0;
      step = lookup.begin(directory, map, guess, kNowMs);
      continue;
    }
    const StoreMap::Place place = map.place(lookup.location());
    REQUIRE(lookup.length() > 0 && lookup.length() <= place.room);
    const size_t before_value = lookup.value_offset();
    const bool splits = choice & 4 && before_value > 0 && lookup.length() > before_value;
    fuzz::Bytes all = read(lookup.location(), lookup.length());
    if (all.empty()) return 0;
    if (splits && !input.empty()) {  // the value is read separately, after another change
      head.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(before_value));
      memory.change(input, hash);
      all = read(lookup.location(), lookup.length());
      rest.assign(all.begin() + static_cast<ptrdiff_t>(before_value), all.end());
      step = lookup.take(head, map, rest);
    } else {
      head = std::move(all);
      rest.clear();
      step = lookup.take(head, map);
    }
  }
  if (step == Step::found) {
    const auto* value = reinterpret_cast<const std::byte*>(lookup.value().data());
    const fuzz::Bytes& from = rest.empty() ? head : rest;
    REQUIRE(value >= from.data() && value + lookup.value().size() <= from.data() + from.size());
  }
  return 0;
}

SEED("a-key-that-is-there") { script.byte(0); }
SEED("a-value-read-separately") { script.byte(4).byte(200).number(uint16_t{9}).byte(0).byte(0).byte(1); }
SEED("a-deep-directory") { script.byte(0).byte(8).byte(3).add("\x18\0\0\0", 4).byte(0); }
SEED("a-location-in-another-chunk") { script.byte(0).byte(1).byte(7).add("\0\0\0\0\1\0\0\0", 8).byte(0); }
SEED("a-long-item") { script.byte(2).byte(255).byte(3 + 4 * 12).byte(3).add("\xff\xff\xff\x7f", 4).byte(0); }
SEED("a-short-layout") { script.byte(1).byte(4).byte(200).byte(3); }
