// The keyspace on ordinary memory: what is stored is found, what expires or is evicted goes, and memory comes
// back.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "check.h"
#include "kv/store/keyspace.h"
#include "kv_engine.h"

using namespace verbena::kv;
using engines::heap;

namespace {

std::string value_of(Database& database, const std::string& key) {
  const Entry entry = database.find(key);
  return entry ? std::string(entry.value()) : "(none)";
}

}  // namespace

TEST("arena: blocks do not overlap, and what is freed is used again") {
  Arena arena(heap);
  std::mt19937 random(3);
  std::map<Location, std::pair<size_t, unsigned char>> blocks;
  for (int round = 0; round < 4000; ++round) {
    if (blocks.size() < 300 || random() % 2) {
      const size_t bytes = random() % 8 ? 1 + random() % 3000 : 1 + random() % 100'000;
      const Location at = arena.allocate(bytes);
      const auto fill = static_cast<unsigned char>(random());
      std::memset(arena.at(at), fill, bytes);
      CHECK(blocks.emplace(at, std::pair(bytes, fill)).second);
    } else {
      const auto chosen = std::next(blocks.begin(), static_cast<ptrdiff_t>(random() % blocks.size()));
      const auto [bytes, fill] = chosen->second;
      const auto* data = reinterpret_cast<const unsigned char*>(arena.at(chosen->first));
      CHECK(std::all_of(data, data + bytes, [fill = fill](unsigned char c) { return c == fill; }));
      arena.free(chosen->first, bytes);
      blocks.erase(chosen);
    }
  }
  for (const auto& [at, block] : blocks) arena.free(at, block.first);
  CHECK(arena.used_bytes() == 0);
}

TEST("keyspace: random sets, changes and deletions agree with a map") {
  Keyspace keyspace(2, heap);
  keyspace.set_now(1'000'000);
  Database& database = keyspace.database(0);
  std::map<std::string, std::string> model;
  std::mt19937 random(5);
  for (int round = 0; round < 30'000; ++round) {
    const std::string key = "key:" + std::to_string(random() % 2000);
    switch (random() % 4) {
      case 0:
      case 1: {
        const std::string value(random() % 300, static_cast<char>('a' + random() % 26));
        database.set(database.find(key, false), key, value, 0);
        model[key] = value;
        break;
      }
      case 2:
        if (const Entry entry = database.find(key, false)) database.erase(entry);
        model.erase(key);
        break;
      default: {
        const Entry entry = database.find(key, false);
        const size_t bytes = random() % 400;
        database.resize(entry, key, bytes);
        model[key].resize(bytes, '\0');
      }
    }
    CHECK(database.size() == model.size());
  }
  for (const auto& [key, value] : model) CHECK(value_of(database, key) == value);
  size_t seen = 0;
  uint64_t cursor = 0;
  do cursor = database.scan(cursor, 100, [&](Entry entry) { seen += model.count(std::string(entry.key())); });
  while (cursor != 0);
  CHECK(seen >= model.size());
}

TEST("keyspace: a key is found wherever it was expected, and one that is not there is not") {
  Keyspace keyspace(1, heap);
  Database& database = keyspace.database(0);
  const auto name = [](int i) { return "key:" + std::to_string(i); };
  for (int i = 0; i < 3000; ++i) database.set({}, name(i), name(i), 0);
  for (int i = 0; i < 6000; ++i) {
    const std::string key = name(i);
    const uint64_t hash = keyspace.hash(key);
    const uint32_t place = database.index().prefetch_item(hash);
    CHECK(place < kBucketSlots);
    for (uint32_t guess = 0; guess < kBucketSlots; ++guess) {
      keyspace.set_prefetched(key, hash, guess);
      CHECK(value_of(database, key) == (i < 3000 ? key : "(none)"));
    }
    keyspace.set_prefetched({}, 0);  // the next key may lie at the same address
  }
}

TEST("keyspace: an expired key is removed by a look-up or by the expiry cycle") {
  Keyspace keyspace(1, heap);
  keyspace.set_now(10'000);
  Database& database = keyspace.database(0);
  std::vector<std::string> gone;
  keyspace.on_removed = [&](uint32_t, char kind, const char* event, std::string_view key) {
    CHECK(kind == 'x');
    CHECK(std::string(event) == "expired");
    gone.emplace_back(key);
  };
  database.set({}, "asked", "1", 10'500);
  database.set({}, "unasked", "1", 10'900);
  database.set({}, "put off", "1", 10'900);
  Entry entry = database.find("put off");
  database.set_expires(entry, 60'000);
  CHECK(database.volatile_keys() == 3);
  keyspace.set_now(10'500);
  CHECK(!database.find("asked"));
  keyspace.set_now(12'000);
  CHECK(database.expire_due(12'000, ~uint64_t{0}) == 1);
  CHECK((gone == std::vector<std::string>{"asked", "unasked"}));
  CHECK(database.size() == 1);
  CHECK(keyspace.counters.expired == 2);
  keyspace.set_now(60'000);
  database.expire_due(60'000, ~uint64_t{0});
  CHECK(database.size() == 0 && database.volatile_keys() == 0);
}

TEST("keyspace: keys that come and go with a time leave nothing behind, and the others still expire") {
  for (const bool exposed : {false, true}) {
    Keyspace keyspace(1, heap);
    if (exposed) keyspace.expose();
    uint64_t now = 1'000'000;
    keyspace.set_now(now);
    Database& database = keyspace.database(0);
    for (int i = 0; i < 100; ++i) database.set({}, "stays" + std::to_string(i), "1", now + 50'000);
    for (int i = 0; i < 100; ++i) {
      Entry entry = database.find("stays" + std::to_string(i));
      database.set_expires(entry, now + 90'000);  // its entry stays where it is
    }
    for (int round = 0; round < 40; ++round) {
      for (int i = 0; i < 1000; ++i) {
        const std::string key = "comes and goes " + std::to_string(i % 10);
        database.set({}, key, "1", now + 600'000 + static_cast<uint64_t>(i));
        database.erase(database.find(key));
      }
      keyspace.set_now(now += 1000);
      database.expire_due(now, ~uint64_t{0});
      keyspace.reclaim(~uint64_t{0} >> 1, ~uint64_t{0});
    }
    CHECK(database.volatile_keys() == 100);
    CHECK(database.due_entries() <= 2 * 100 + 4096);
    keyspace.set_now(now = 1'000'000 + 89'000);  // their first entries have been looked at
    CHECK(database.expire_due(now, ~uint64_t{0}) == 0);
    CHECK(database.size() == 100);
    keyspace.set_now(now = 1'000'000 + 91'000);
    CHECK(database.expire_due(now, ~uint64_t{0}) == 100);
    CHECK(database.size() == 0 && database.volatile_keys() == 0);
  }
}

TEST("keyspace: with a bound keys go, and without a policy writes are refused") {
  Keyspace keyspace(1, heap);
  keyspace.set_now(1'000'000);
  Database& database = keyspace.database(0);
  keyspace.max_bytes = keyspace.used_bytes() + 500'000;
  const std::string value(1000, 'v');
  size_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!keyspace.make_room()) {
      ++refused;
      continue;
    }
    database.set({}, "key:" + std::to_string(i), value, 0);
  }
  CHECK(refused > 0);
  keyspace.eviction = Eviction::all_lru;
  for (int i = 1000; i < 3000; ++i) {
    CHECK(keyspace.make_room());
    database.set({}, "key:" + std::to_string(i), value, 0);
  }
  CHECK(keyspace.used_bytes() <= keyspace.max_bytes + 4096);
  CHECK(keyspace.counters.evicted > 1000);
}

TEST("keyspace: the bytes of the program's objects count until they are released, and make keys go") {
  Keyspace keyspace(1, heap);
  keyspace.set_now(1'000'000);
  Database& database = keyspace.database(0);
  Entry entry = database.set_object({}, "a", Type::hash, {.object = 7, .bytes = 1000}, 0);
  CHECK(keyspace.object_bytes() == 1000);
  CHECK(entry.object() == 7 && entry.memory_bytes() > 1000);
  database.count_object(entry, 5000);
  CHECK(keyspace.object_bytes() == 5000 && entry.object() == 7);
  database.count_object(entry, 200);
  database.set_object(database.find("a"), "a", Type::set, {.object = 8, .bytes = 300}, 0);
  CHECK(keyspace.object_bytes() == 300);
  CHECK((keyspace.take_released() == std::vector<uint64_t>{7}));
  database.set(database.find("a"), "a", "a string", 0);
  CHECK(keyspace.object_bytes() == 0);
  keyspace.max_bytes = keyspace.used_bytes() + 1'000'000;
  keyspace.eviction = Eviction::all_random;
  for (uint64_t i = 0; i < 100; ++i) {
    CHECK(keyspace.make_room());
    database.set_object({}, "key:" + std::to_string(i), Type::list, {.object = i, .bytes = 100'000}, 0);
  }
  CHECK(keyspace.used_bytes() <= keyspace.max_bytes + 100'000);
  CHECK(keyspace.counters.evicted > 80);
  database.clear();
  for (uint64_t now = 1; keyspace.has_retired(); now += 1'000'000'000) keyspace.reclaim(now, ~uint64_t{0});
  CHECK(keyspace.object_bytes() == 0);
}

TEST("keyspace: watchers are notified of a change of their key once, and of no other key") {
  Keyspace keyspace(2, heap);
  keyspace.set_now(1);
  keyspace.watch(0, "k", 7);
  keyspace.watch(1, "k", 8);
  keyspace.changed(keyspace.database(0), "other");
  CHECK(!keyspace.has_dirty_watchers());
  keyspace.changed(keyspace.database(0), "k");
  keyspace.changed(keyspace.database(0), "k");
  CHECK((keyspace.take_dirty_watchers() == std::vector<uint64_t>{7}));
  keyspace.swap(0, 1);
  CHECK(!keyspace.has_dirty_watchers());  // the key is in neither
  keyspace.database(0).set({}, "k", "value", 0);
  keyspace.swap(0, 1);
  CHECK((keyspace.take_dirty_watchers() == std::vector<uint64_t>{8}));
}

TEST("keyspace: a flushed database gives its memory back bit by bit") {
  Keyspace keyspace(1, heap);
  keyspace.set_now(1);
  Database& database = keyspace.database(0);
  const size_t empty = keyspace.used_bytes();
  for (int i = 0; i < 5000; ++i) database.set({}, "key:" + std::to_string(i), "value", 0);
  database.clear();
  CHECK(database.size() == 0);
  for (uint64_t now = 1; keyspace.has_retired(); now += 1'000'000'000) keyspace.reclaim(now, ~uint64_t{0});
  CHECK(keyspace.used_bytes() <= empty + 65'536);
}

RUN_TESTS()
