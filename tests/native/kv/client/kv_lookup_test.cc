// Lookups over a keyspace's memory, without a wire: each step reads the memory directly, and a test may
// change it between two steps, as a store does while a reader is held up.
#include <cstring>
#include <functional>

#include "check.h"
#include "kv/client/lookup.h"
#include "kv/store/index.h"
#include "kv/store/item.h"
#include "kv/store/keyspace.h"
#include "kv_engine.h"

using namespace verbena::kv;
using engines::heap;

namespace {

constexpr uint64_t kNowMs = 1'000'000;

std::string layout_of(Keyspace& keyspace) {
  std::string out;
  const auto append = [&](const auto& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(LayoutHeader{kLayoutVersion, keyspace.databases(), static_cast<uint32_t>(keyspace.arena().chunks()),
                      0, keyspace.hash_key()});
  for (uint32_t i = 0; i < keyspace.databases(); ++i) {
    append(keyspace.exists(i) ? keyspace.database(i).index().root() : Location{0});
  }
  for (size_t i = 0; i < keyspace.arena().chunks(); ++i) {
    append(ChunkEntry{i, keyspace.arena().chunk(i).length});
  }
  return out;
}

struct Store {
  Store() {
    keyspace.set_now(kNowMs);
    keyspace.expose();
  }
  void set(uint32_t database, std::string_view key, std::string_view value) {
    Database& into = keyspace.database(database);
    into.set(into.find(key, false), key, value, 0);
  }
  void erase(uint32_t database, std::string_view key) {
    keyspace.database(database).erase(keyspace.database(database).find(key, false));
  }
  Location location(uint32_t database, std::string_view key) {
    const uint64_t* slot = keyspace.database(database).index().find(keyspace.hash(key), key);
    return slot ? location_of(*slot) : 0;
  }
  // Waits until retired blocks may be used again.
  void reclaim() { keyspace.reclaim(~uint64_t{0} / 2, ~uint64_t{0}); }

  Keyspace keyspace{4, heap};
};

struct Result {
  Step step;
  std::string value;
};

// `before_item` runs once, between the READ of the bucket and the READ of the item.
Result get(Store& store, uint32_t database, std::string_view key, std::function<void()> before_item = [] {}) {
  StoreMap map;
  CHECK(map.load(layout_of(store.keyspace)));
  const auto read = [&](Location at, size_t bytes) {
    CHECK(map.place(at).room >= bytes);
    const std::byte* from = store.keyspace.arena().at(at);
    return std::vector<std::byte>(from, from + bytes);
  };
  Directory directory;
  const auto refresh = [&] {
    IndexRoot root;
    std::memcpy(&root, read(map.root(database), sizeof root).data(), sizeof root);
    directory = {root.depth, std::vector<Location>(size_t{1} << root.depth)};
    const size_t bytes = directory.segments.size() * sizeof(Location);
    std::memcpy(directory.segments.data(), read(root.directory, bytes).data(), bytes);
  };
  Lookup lookup(key, map.hash_key(), database);
  std::vector<std::byte> bytes;
  Step step = Step::refresh;
  while (step == Step::refresh || step == Step::read) {
    if (step == Step::refresh) {
      refresh();
      step = lookup.begin(directory, map, 256, kNowMs);
      continue;
    }
    if (lookup.value_offset() > 0) std::exchange(before_item, [] {})();
    bytes = read(lookup.location(), lookup.length());
    step = lookup.take(bytes, map);
  }
  return {step, std::string(lookup.value())};
}

}  // namespace

TEST("a key is found in its database only") {
  Store store;
  store.set(0, "key", "zero");
  store.set(1, "key", "one");
  CHECK(get(store, 0, "key").value == "zero");
  CHECK(get(store, 1, "key").value == "one");
  CHECK(get(store, 0, "other").step == Step::absent);
}

TEST("a reader that is held up does not accept another database's item in a reused block") {
  Store store;
  store.set(0, "key", "zero");
  store.set(1, "other", "one");
  const Location block = store.location(0, "key");
  const Result result = get(store, 0, "key", [&] {
    store.erase(0, "key");
    store.reclaim();
    store.set(1, "key", "ones");
    CHECK(store.location(1, "key") == block);
  });
  CHECK(result.step == Step::absent);
  CHECK(get(store, 1, "key").value == "ones");
}

TEST("a reader that is held up does not accept an item of the same database after FLUSHDB") {
  Store store;
  store.set(0, "key", "old");
  const Location block = store.location(0, "key");
  const Result result = get(store, 0, "key", [&] {
    store.keyspace.database(0).clear();
    for (int i = 0; i < 100 && store.keyspace.has_retired(); ++i) store.reclaim();
    for (int i = 0; store.location(0, "key") != block; ++i) {
      CHECK(i < 10'000);
      store.set(0, "key", "new");
    }
  });
  CHECK(result.step == Step::found);
  CHECK(result.value == "new");
}

TEST("items keep their checksums through SWAPDB") {
  Store store;
  for (int i = 0; i < 5000; ++i) store.set(0, "key:" + std::to_string(i), std::to_string(i));
  store.set(1, "key:7", "other");
  store.keyspace.swap(0, 1);
  CHECK(get(store, 0, "key:7").value == "other");
  for (int i = 0; i < 5000; ++i) CHECK(get(store, 1, "key:" + std::to_string(i)).value == std::to_string(i));
  // Segments that split after the exchange have the index's id, too.
  for (int i = 5000; i < 20'000; ++i) store.set(1, "key:" + std::to_string(i), std::to_string(i));
  for (int i = 0; i < 20'000; ++i) {
    CHECK(get(store, 1, "key:" + std::to_string(i)).value == std::to_string(i));
  }
}

TEST("an item is sealed for its own index when its expiry is rescheduled") {
  Store store;
  Database& database = store.keyspace.database(3);
  Entry entry = database.set({}, "key", "value", kNowMs + 1'000);
  database.set_expires(entry, kNowMs + 5'000);
  store.keyspace.set_now(kNowMs + 2'000);
  database.expire_due(kNowMs + 2'000, ~uint64_t{0});
  CHECK(get(store, 3, "key").value == "value");
}

TEST("70,000 flushes never give two databases one id") {
  Store store;
  store.set(0, "key", "zero");
  const uint16_t kept = store.keyspace.database(0).index().id();
  for (int i = 0; i < 70'000; ++i) {
    store.keyspace.database(1).clear();
    CHECK(store.keyspace.database(1).index().id() != kept);
    if (i % 16 == 0) store.reclaim();
  }
  CHECK(get(store, 0, "key").value == "zero");
}

RUN_TESTS()
