// Long values of a piece are copied to their final place while the piece's checksum is computed: the checksum
// is that of the piece, exactly the summed bytes are applied, and a piece that turns out wrong leaves nothing
// behind.
#include <algorithm>
#include <cstring>
#include <functional>

#include "check.h"
#include "kv/journal/log_applier.h"
#include "kv/values/staged_values.h"
#include "kv_engine.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"

using namespace verbena::kv;

namespace {

constexpr size_t kLong = 20'000;
constexpr uint64_t kLater = 1'000'000'000'000;

enum class Moment { staged, copied };

struct Target {
  Target() : engine(1, engines::heap), applier(engine, {}) {
    engine.refresh_time();
    engine.keyspace.database(0);
    empty = engine.keyspace.arena().used_bytes();
  }
  std::string value(std::string_view key) {
    const Entry entry = engine.keyspace.database(0).peek(key);
    return std::string(entry ? entry.value() : "");
  }
  size_t keys() { return engine.keyspace.database(0).size(); }
  // Memory in use beyond the items themselves.
  size_t used() {
    engine.keyspace.reclaim(verbena::now_ns() + kLater, verbena::now_ns() + kLater);
    size_t bytes = engine.keyspace.arena().used_bytes();
    engine.keyspace.database(0).scan(0, 1 << 20, [&](Entry entry) {
      bytes -= Arena::block_bytes(sizeof(ItemHeader) + entry.key().size() + entry.value().size());
    });
    return bytes;
  }
  // What CopyReceiver does; `meanwhile` runs when values have been found, and when the piece has been copied.
  template <typename Meanwhile>
  bool receive(std::string& piece, uint32_t sum, Meanwhile meanwhile) {
    StagedValues staged(engine);
    {
      const auto held = engine.lock();
      applier.stage(piece, staged);
    }
    meanwhile(Moment::staged);
    std::string copy(piece.size(), '\0');
    if (staged.fill(7, piece, copy.data()) != sum) return false;
    meanwhile(Moment::copied);
    const auto held = engine.lock();
    applier.apply(copy, true, &staged);
    return true;
  }
  bool receive(std::string piece) {
    // A copy of exact length, so that sanitizers detect reads beyond it.
    std::string exact(piece);
    return receive(exact, verbena::crc32c(7, exact.data(), exact.size()), [](Moment) {});
  }

  Engine engine;
  LogApplier applier;
  size_t empty;
};

void add(std::string& stream, uint64_t lsn, std::initializer_list<std::string_view> list, uint8_t flags = 0) {
  const std::vector<std::string_view> arguments(list);
  seal_record(stream, put_record(stream, lsn, 1, 0, flags, arguments), kStreamSeed);
}

std::string text(size_t bytes, char first) {
  std::string made(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(first + static_cast<char>(i % 41));
  return made;
}

}  // namespace

TEST("a piece with a wrong checksum leaves no key and no memory behind") {
  Target target;
  std::string piece;
  for (uint64_t i = 1; i < 9; ++i) add(piece, i, {"SET", "key" + std::to_string(i), text(kLong, 'a')});
  const uint32_t sum = verbena::crc32c(7, piece.data(), piece.size());
  for (size_t at = 3; at < piece.size(); at += 4999) {
    std::string damaged = piece;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    CHECK(!target.receive(damaged, sum, [](Moment) {}));
    CHECK(target.keys() == 0 && target.used() == target.empty && target.applier.lsn() == 0);
  }
  CHECK(target.receive(piece) && target.keys() == 8 && target.value("key8") == text(kLong, 'a'));
  CHECK(target.used() == target.empty);
}

TEST("pieces may end anywhere, also within records") {
  std::string stream;
  add(stream, 1, {"SET", "first", text(kLong, 'a')});
  add(stream, 2, {"SET", "short", "value"});
  add(stream, 3, {"SET", "second", text(kLong, 'b')});
  for (size_t cut = 1; cut < stream.size(); cut += cut % 20'000 < 90 ? 1 : 997) {
    Target target;
    CHECK(target.receive(stream.substr(0, cut)) && target.receive(stream.substr(cut)));
    CHECK(target.applier.lsn() == 3 && target.applier.is_idle() && target.keys() == 3);
    CHECK(target.value("first") == text(kLong, 'a') && target.value("second") == text(kLong, 'b'));
    CHECK(target.used() == target.empty);
  }
}

TEST("a repeated or replacing value is stored once") {
  Target target;
  Database& database = target.engine.keyspace.database(0);
  database.set({}, "same", text(kLong, 'x'), 0);
  database.set({}, "timed", text(100, 'x'), 9'000'000'000'000);
  std::string piece;
  add(piece, 1, {"SET", "twice", text(kLong, 'a')}, kValueRecord);
  add(piece, 1, {"SET", "twice", text(2 * kLong, 'b')}, kValueRecord);
  add(piece, 1, {"SET", "same", text(kLong, 'c')}, kValueRecord);
  add(piece, 1, {"SET", "timed", text(kLong, 'd')}, kValueRecord);
  add(piece, 2, {"SET", "new", text(kLong, 'e')});
  for (int i = 0; i < 3; ++i) {  // the second time all of it is skipped
    CHECK(target.receive(piece) && target.keys() == 4);
    CHECK(target.value("twice") == text(2 * kLong, 'b') && target.value("same") == text(kLong, 'c'));
    CHECK(target.value("timed") == text(kLong, 'd') && target.value("new") == text(kLong, 'e'));
    CHECK(database.peek("timed").expires_ms() == 0 && database.volatile_keys() == 0);
    CHECK(target.used() == target.empty);
  }
  CHECK(target.applier.skipped() == 10);
}

TEST("a value that is being read is not changed by its replacement") {
  Target target;
  Database& database = target.engine.keyspace.database(0);
  const auto hold = target.engine.keyspace.hold();
  const std::string_view before = database.set({}, "key", text(kLong, 'x'), 0).value();
  hold->from = target.engine.keyspace.retired_blocks();
  std::string piece;
  add(piece, 1, {"SET", "key", text(kLong, 'a')});
  CHECK(target.receive(piece) && target.value("key") == text(kLong, 'a') && before == text(kLong, 'x'));
  hold->from = Keyspace::Hold::kNothing;
  CHECK(target.used() == target.empty);
}

TEST("grouped records, records with an expiry and other types are applied without staging") {
  Target target;
  std::string piece;
  add(piece, 1, {"SET", "one", text(kLong, 'a')}, kMore);
  add(piece, 2, {"SET", "two", text(kLong, 'b')});
  add(piece, 3, {"SET", "timed", text(kLong, 'c'), "PXAT", "9000000000000"});
  add(piece, 4, {"APPEND", "two", text(kLong, 'd')});
  CHECK(target.receive(piece) && target.value("one") == text(kLong, 'a'));
  CHECK(target.value("two") == text(kLong, 'b') + text(kLong, 'd'));
  CHECK(target.value("timed") == text(kLong, 'c') && target.used() == target.empty);
}

TEST("the sender cannot change a piece after its checksum was computed") {
  std::string piece;
  add(piece, 1, {"SET", "key", text(kLong, 'a')});
  add(piece, 2, {"SET", "short", "value"});
  add(piece, 3, {"SET", "last", text(kLong, 'b')});
  const uint32_t sum = verbena::crc32c(7, piece.data(), piece.size());
  constexpr size_t kName = sizeof(LogRecordHeader) + 4 + 3, kValue = kName + 4 + 3;
  const auto put = [](std::string& to, size_t at, uint32_t number) {
    std::memcpy(to.data() + at, &number, sizeof number);
  };
  const std::function<void(std::string&)> changes[] = {
      [&](std::string& changed) { changed[kValue + 4] = '!'; },
      [&](std::string& changed) {  // a shorter key, and a value that is longer by the same amount
        put(changed, kName, 1);
        put(changed, kName + 4 + 1, kLong + 2);
      },
      [&](std::string& changed) { put(changed, sizeof(LogRecordHeader), ~0u); },  // no longer records
      [&](std::string& changed) { changed.assign(changed.size(), '\0'); },
      [&](std::string& changed) { changed.replace(changed.find("value"), 5, "VALUE"); },
  };
  for (const auto& change : changes) {
    Target target;
    std::string changed = piece;
    CHECK(target.receive(changed, sum, [&](Moment moment) {
      if (moment == Moment::copied) change(changed);
    }));
    CHECK(target.value("key") == text(kLong, 'a') && target.value("short") == "value");
    CHECK(target.value("last") == text(kLong, 'b') && target.used() == target.empty);
  }
}

TEST("records that change between staging and copying leave no memory behind and no foreign byte") {
  std::string first, second;
  add(first, 1, {"SET", "key", text(kLong, 'a')});
  add(second, 1, {"SET", "k", text(kLong + 2, 'b')});
  CHECK(first.size() == second.size());
  Target target;
  std::string changed = first;
  const uint32_t sum = verbena::crc32c(7, second.data(), second.size());
  CHECK(target.receive(changed, sum, [&](Moment moment) {
    if (moment == Moment::staged) changed = second;
  }));
  CHECK(target.keys() == 1 && target.value("k") == text(kLong + 2, 'b') && target.used() == target.empty);
}

TEST("without memory the record is refused") {
  size_t left = 2;
  Engine engine(1, [&left](size_t bytes) {
    if (left == 0) throw verbena::Error("no_memory", "store a value", "there is none");
    --left;
    return engines::heap(bytes);
  });
  LogApplier applier(engine, {});
  std::string piece;
  for (uint64_t i = 1; i < 4; ++i) {
    add(piece, i, {"SET", "key" + std::to_string(i), std::string(Arena::kChunkBytes * 2 / 3, 'v')});
  }
  bool refused = false;
  {
    StagedValues staged(engine);
    applier.stage(piece, staged);
    std::string copy(piece.size(), '\0');
    CHECK(staged.fill(0, piece, copy.data()) == verbena::crc32c(0, piece.data(), piece.size()));
    try {
      applier.apply(copy, true, &staged);
    } catch (const verbena::Error& error) {
      refused = error.code() == "no_memory";
    }
  }
  CHECK(refused && applier.lsn() == 3 && engine.keyspace.database(0).size() == 2);
}

RUN_TESTS()
