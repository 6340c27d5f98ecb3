// The backlog: readers see every record once and in order, slow readers are lost, a base copy and the log
// after it reproduce the contents under concurrent commands, and damaged records are never applied.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "check.h"
#include "kv/journal/backlog.h"
#include "kv/journal/base_copy.h"
#include "kv/journal/log_applier.h"
#include "kv_contents.h"
#include "kv_engine.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"

using namespace verbena::kv;
using engines::heap;
using engines::QuietClient;
using verbena::Error;

namespace {

// An engine with one client.
struct Store {
  Store() : engine(4, heap), client(engine.next_client()) {
    engine.refresh_time();
    engine.add(client);
  }
  ~Store() { engine.remove(client); }
  void run(std::initializer_list<std::string_view> list) { engines::run_quietly(engine, client, list); }
  std::string contents() { return engines::contents(engine); }
  void change_databases(std::initializer_list<std::string_view> list) {  // as Python does
    const std::vector<std::string_view> arguments(list);
    const DatabaseEffect kind = database_effect(arguments[0]);
    if (kind == DatabaseEffect::swap) {
      engine.keyspace.swap(static_cast<uint32_t>(arguments[1][0] - '0'),
                           static_cast<uint32_t>(arguments[2][0] - '0'));
    } else {
      for (uint32_t i = 0; i < 4; ++i) {
        if (kind == DatabaseEffect::flush_all || i == client.database) engine.keyspace.database(i).clear();
      }
    }
    engine.keyspace.log(client.database, arguments);
    if (engine.journal()) engine.journal()->end_command();
  }
  Engine engine;
  QuietClient client;
};

std::string all_of(BacklogReader& reader, size_t at_a_time = 1u << 20) {
  std::string out;
  while (reader.lag_bytes() > 0) {
    std::string piece;
    CHECK(reader.read(piece, at_a_time));
    out += piece;
  }
  return out;
}

// Fills a piece of a copy, with its holes, and returns its length. With `enough` of the whole piece it
// repeats until the piece is full, because the copy may return early.
size_t fill(BaseCopy& copy, std::string& to, size_t enough, bool leave_holes) {
  CopyPiece piece{.to = to};
  do {
    copy.fill(piece, enough, leave_holes);
  } while (enough >= to.size() && piece.used < piece.to.size() && !copy.is_complete() &&
           copy.error().empty());
  CHECK(leave_holes || piece.holes.empty());
  piece.fill_holes();
  CHECK(piece.seal() == verbena::crc32c(0, to.data(), piece.used));
  return piece.used;
}

}  // namespace

TEST("readers see each record once, in order, from where they begin") {
  Store store;
  Backlog& backlog = store.engine.backlog();
  const auto first = backlog.read_from(1);
  CHECK(first && !backlog.read_from(2));
  for (int i = 0; i < 5000; ++i) store.run({"SET", "key" + std::to_string(i), std::string(64, 'x')});
  std::string early;
  CHECK(first->read(early, 1000) && early.empty() && first->lag() == 0);  // not published yet
  store.engine.commit();
  CHECK(first->lag() == 5000 && backlog.visible_lsn() == 5000);
  const auto second = backlog.read_from(4001);
  const std::string all = all_of(*first, 3000), some = all_of(*second);
  CHECK(all.size() == backlog.visible_offset() && all.ends_with(some) && first->next_lsn() == 5001);
  Store replica, partial;
  LogApplier applier(replica.engine, {});
  // Pieces are cut anywhere: 7 divides no length here.
  for (size_t at = 0; at < all.size(); at += 7) applier.apply(std::string_view(all).substr(at, 7));
  CHECK(applier.lsn() == 5000 && applier.offset() == all.size() && applier.is_idle());
  CHECK(replica.contents() == store.contents() && applier.applied() == 5000);
  // Applying it again changes nothing.
  CHECK(applier.apply(all) == 5000 && applier.skipped() == 5000 && applier.applied() == 5000);
}

TEST("a reader that is too slow is lost, and reading from a dropped LSN is refused") {
  Store store;
  Backlog& backlog = store.engine.backlog();
  backlog.set_limits(100'000, 300'000);
  auto slow = backlog.read_from(1);
  const auto write = [&](int count) {
    for (int i = 0; i < count; ++i) store.run({"SET", "key", std::string(1000, 'x')});
    store.engine.commit();
  };
  write(200);  // more than keep_bytes, but a reader needs it
  CHECK(backlog.kept().first_lsn == 1);
  std::string out;
  CHECK(slow->read(out, 5000));
  write(300);  // more than max_bytes
  out.clear();
  while (slow->read(out, 1u << 20) && slow->lag_bytes() > 0) {
  }
  CHECK(slow->is_lost());
  CHECK(backlog.kept().bytes <= 300'000 && backlog.kept().first_lsn > 100);
  CHECK(!backlog.read_from(1) && backlog.read_from(backlog.kept().first_lsn) && backlog.read_from(501));
  slow.reset();
  CHECK(backlog.kept().bytes <= 100'000 + (64u << 10));
}

TEST("offsets continue where another history ended, before the backlog exists and after") {
  Store store;
  store.engine.restart_at(5000);
  Backlog& backlog = store.engine.backlog();
  CHECK(backlog.written_offset() == 5000 && backlog.visible_offset() == 5000);
  CHECK(backlog.kept().first_offset == 5000 && backlog.kept().bytes == 0);
  auto reader = backlog.read_from(1);
  store.run({"SET", "key", "value"});
  store.engine.commit();
  std::string out;
  CHECK(reader->read(out, 1000) && !out.empty());
  CHECK(backlog.visible_offset() == 5000 + out.size() && reader->offset() == backlog.visible_offset());
  store.engine.restart_at(100);  // also backwards: it is another history
  CHECK(!reader->read(out, 1000) && reader->is_lost());
  CHECK(backlog.visible_offset() == 100 && backlog.kept().first_offset == 100 && !backlog.read_from(1));
  auto again = backlog.read_from(2);
  store.run({"SET", "key", "value"});
  store.engine.commit();
  std::string more;
  CHECK(again->read(more, 1000) && more.size() == out.size());
  CHECK(backlog.visible_offset() == 100 + more.size());
}

TEST("a record longer than a chunk is read, and the log may be cut within it") {
  Store store;
  Backlog& backlog = store.engine.backlog();
  const auto reader = backlog.read_from(1);
  const std::string value(3'000'000, 'v');
  store.run({"SET", "long", value});
  store.run({"APPEND", "long", "!"});
  store.engine.commit();
  std::string first;
  CHECK(reader->read(first, 100) && first.size() > value.size() && reader->lag() == 1);
  const std::string all = first + all_of(*reader);
  Store replica;
  LogApplier applier(replica.engine, {});
  for (size_t at = 0; at < all.size(); at += 100'000)
    applier.apply(std::string_view(all).substr(at, 100'000));
  CHECK(replica.contents() == store.contents());
}

TEST("a copy is cut into pieces anywhere, whatever its records' length") {
  Store store, replica;
  for (const size_t length : {0u, 1u, 1023u, 1024u, 5000u, 70'001u, 300'000u}) {
    store.run({"SET", "key" + std::to_string(length), std::string(length, 'v')});
  }
  BaseCopy copy(store.engine, store.engine.backlog(), nullptr);
  LogApplier applier(replica.engine, {});
  std::string piece;
  bool leave_holes = false;
  while (!copy.is_complete()) {
    piece.assign(10'000, 'x');
    piece.resize(fill(copy, piece, piece.size(), leave_holes = !leave_holes));
    CHECK(piece.size() == 10'000 || copy.is_complete());
    applier.apply(piece);
  }
  CHECK(fill(copy, piece, 1, true) == 0);
  CHECK(applier.is_complete() && replica.contents() == store.contents());
}

TEST("a long value that would be cut begins the next piece, unless much room would be left") {
  Store store, replica;
  for (int i = 0; i < 40; ++i) store.run({"SET", "key" + std::to_string(i), std::string(20'000, 'v')});
  for (int i = 0; i < 4; ++i) store.run({"SET", "long" + std::to_string(i), std::string(90'000, 'l')});
  BaseCopy copy(store.engine, store.engine.backlog(), nullptr);
  LogApplier applier(replica.engine, {});
  std::string memory(205'000, '\0');
  size_t short_of = 0;
  while (!copy.is_complete()) {
    CopyPiece piece{.to = memory};
    while (piece.used < piece.to.size() && !copy.is_complete()) copy.fill(piece, 50'000, true);
    CHECK(copy.is_complete() || piece.used >= memory.size() - memory.size() / 8);
    for (const CopyPiece::Hole& hole : piece.holes) CHECK(hole.record_bytes != 0 || hole.bytes > 20'000);
    short_of += piece.used < memory.size();
    piece.fill_holes();
    piece.seal();
    applier.apply(std::string_view(memory).substr(0, piece.used));
  }
  CHECK(short_of > 1 && applier.is_complete() && replica.contents() == store.contents());
}

TEST("long values that a piece refers to stay unchanged under all commands until released") {
  Store store;
  for (int i = 0; i < 4; ++i) {
    store.run({"SET", "key" + std::to_string(i), std::string(80'000, static_cast<char>('a' + i))});
  }
  Keyspace& keyspace = store.engine.keyspace;
  const size_t used = keyspace.arena().used_bytes();
  const auto hold = keyspace.hold();
  BaseCopy copy(store.engine, store.engine.backlog(), nullptr);
  std::string memory(300'000, '\0');
  CopyPiece piece{.to = memory, .held_from = keyspace.retired_blocks()};
  hold->from = piece.held_from;
  while (piece.used < memory.size()) copy.fill(piece, memory.size(), true);
  CHECK(piece.holes.size() == 4 && piece.holes.back().record_bytes == 0);
  std::string expected = memory;
  CopyPiece at_once = piece;
  at_once.to = expected;
  at_once.fill_holes();
  at_once.seal();

  store.run({"SETRANGE", "key0", "7", "changed"});
  store.run({"APPEND", "key1", "more"});
  store.run({"SET", "key2", std::string(80'000, 'x')});
  store.run({"DEL", "key3"});
  store.change_databases({"FLUSHALL"});
  constexpr uint64_t kLater = 1'000'000'000'000;
  keyspace.reclaim(verbena::now_ns() + kLater, verbena::now_ns() + kLater);
  for (int i = 0; i < 20; ++i) store.run({"SET", "new" + std::to_string(i), std::string(50'000, 'n')});
  piece.fill_holes();
  piece.seal();
  CHECK(memory == expected);

  hold->from = Keyspace::Hold::kNothing;
  for (int i = 0; i < 20; ++i) store.run({"DEL", "new" + std::to_string(i)});
  keyspace.reclaim(verbena::now_ns() + kLater, verbena::now_ns() + kLater);
  CHECK(!keyspace.has_retired() && keyspace.arena().used_bytes() < used);
}

TEST("records of one command are applied together") {
  Store store, replica;
  Backlog& backlog = store.engine.backlog();
  const auto reader = backlog.read_from(1);
  const std::string_view one[] = {"SET", "a", "1"}, two[] = {"SET", "b", "2"};
  store.engine.keyspace.log(0, one);
  store.engine.keyspace.log(0, two);
  backlog.end_command();
  store.engine.commit();
  const std::string all = all_of(*reader);
  LogApplier applier(replica.engine, {});
  CHECK(applier.apply(std::string_view(all).substr(0, all.size() / 2)) == 0 && replica.contents().empty());
  CHECK(!applier.is_idle());
  CHECK(applier.apply(std::string_view(all).substr(all.size() / 2)) == 2 && applier.is_idle());
  CHECK(replica.contents() == "0 a = 1 until 0\n0 b = 2 until 0\n");
}

TEST("a flipped bit anywhere is refused, and so is a stream of another kind") {
  Store store;
  const auto reader = store.engine.backlog().read_from(1);
  store.run({"SET", "a", "12345"});
  store.engine.commit();
  const std::string all = all_of(*reader);
  size_t refused = 0, waits = 0;
  for (size_t bit = 0; bit < all.size() * 8; ++bit) {
    std::string damaged = all;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    Store replica;
    LogApplier applier(replica.engine, {});
    try {
      applier.apply(damaged);
      ++waits;  // a longer length: the end of the record never comes
    } catch (const Error&) {
      ++refused;
    }
    CHECK(replica.contents().empty() && applier.lsn() == 0);
  }
  CHECK(refused > 300 && waits < 32);
}

TEST("a base copy and the log after it reproduce the contents, whatever commands ran meanwhile") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Store store, replica;
    const auto key = [&] { return "key" + std::to_string(random() % 3000); };
    const auto change = [&] {
      store.client.database = static_cast<uint32_t>(random() % 3);
      switch (random() % 40) {
        case 0:
          return store.change_databases({"SWAPDB", "0", random() % 2 ? "1" : "2"});
        case 1:
          if (random() % 20 == 0) return store.change_databases({random() % 4 ? "FLUSHDB" : "FLUSHALL"});
          [[fallthrough]];
        case 2:
        case 3:
        case 4:
          return store.run({"DEL", key()});
        case 5:
        case 6:
          return store.run({"SET", key(), "timed", "PX", "100000"});
        case 7:
        case 8:
        case 9:
          return store.run({"INCR", key()});
        case 10:
          if (random() % 16 == 0) return store.run({"APPEND", key(), std::string(random() % 20'000, 'l')});
          [[fallthrough]];
        default:
          return store.run({"APPEND", key(), std::string(random() % 30, 'a')});
      }
    };
    for (int i = 0; i < 6000; ++i) change();
    BaseCopy copy(store.engine, store.engine.backlog(), nullptr);
    LogApplier applier(replica.engine, {});
    for (bool more = true; more;) {
      for (auto i = random() % 50; i > 0; --i) change();
      std::string piece;
      if (seed % 2) {
        more = copy.read(piece, 1 + random() % 4000);
      } else {
        piece.resize(1 + random() % 16'000);
        piece.resize(fill(copy, piece, 1 + random() % 20'000, random() % 2));
        more = !copy.is_complete() && copy.error().empty();
      }
      applier.apply(piece, seed % 4 == 0);
    }
    CHECK(copy.error().empty() && copy.is_complete() && applier.is_complete());
    const auto reader = copy.take_reader();
    CHECK(applier.offset() == reader->offset() && applier.lsn() + 1 == reader->next_lsn());
    for (int i = 0; i < 500; ++i) change();
    store.engine.commit();
    const std::string rest = all_of(*reader);
    applier.apply(rest);
    CHECK(applier.offset() == store.engine.backlog().visible_offset());
    CHECK(!store.contents().empty() && replica.contents() == store.contents());
  }
}

TEST("a copy of some slots contains no others, and a flush at the source clears only these at the target") {
  Store source, target;
  auto slots = std::make_unique<SlotSet>();
  for (uint32_t slot = 0; slot < 8192; ++slot) slots->set(slot);
  for (int i = 0; i < 200; ++i) {
    const std::string key = "key" + std::to_string(i);
    (key_slot(key) < 8192 ? source : target).run({"SET", key, "old"});
    if (key_slot(key) >= 8192) source.run({"SET", key, "the source's own"});
  }
  BaseCopy copy(source.engine, source.engine.backlog(), std::make_unique<SlotSet>(*slots));
  LogApplier applier(target.engine, {}, 0, std::make_unique<SlotSet>(*slots));
  std::string bytes;
  while (copy.read(bytes, 500)) {
  }
  applier.apply(bytes);
  CHECK(target.engine.keyspace.database(0).size() == 200);
  const auto reader = copy.take_reader();
  const std::string_view low[] = {"SET", "key1", "1"}, high[] = {"SET", "key2", "2"};
  CHECK((key_slot("key1") < 8192) != (key_slot("key2") < 8192));
  source.engine.keyspace.log(0, low);  // a command on two slots, one of which is selected
  source.engine.keyspace.log(0, high);
  source.engine.journal()->end_command();
  source.change_databases({"FLUSHALL"});
  source.run({"SET", "key1", "new"});
  source.run({"SET", "key2", "new"});
  source.engine.commit();
  applier.apply(all_of(*reader));
  CHECK(applier.is_idle());
  CHECK(target.contents().find("= old") != std::string::npos);
  CHECK(target.contents().find("the source's own") == std::string::npos);
  const bool first = key_slot("key1") < 8192;
  CHECK(target.engine.keyspace.database(0).peek(first ? "key1" : "key2").value() == "new");
  CHECK(target.engine.keyspace.database(0).peek(first ? "key2" : "key1").value() == "old");
  try {
    Store other;
    auto few = std::make_unique<SlotSet>();
    LogApplier strict(other.engine, {}, 0, std::move(few));
    strict.apply(bytes);
    CHECK(false && "a record of another slot was applied");
  } catch (const Error&) {
  }
}

TEST("a replica keeps expired keys, invisible to clients, until the primary deletes them") {
  Store store, replica;
  const auto reader = store.engine.backlog().read_from(1);
  const std::string past = std::to_string(store.engine.keyspace.now_ms() + 50);
  store.run({"SET", "k", "v", "PXAT", past});
  store.engine.commit();
  replica.engine.keyspace.keeps_expired = true;
  replica.engine.active_expiry = false;
  LogApplier applier(replica.engine, {});
  applier.apply(all_of(*reader));
  replica.engine.keyspace.set_now(store.engine.keyspace.now_ms() + 1000);
  CHECK(!replica.engine.keyspace.database(0).find("k") && replica.engine.keyspace.database(0).size() == 1);
  CHECK(!replica.engine.keyspace.database(0).random_key());
  store.engine.keyspace.set_now(store.engine.keyspace.now_ms() + 1000);
  CHECK(!store.engine.keyspace.database(0).find("k"));
  store.engine.commit();
  applier.apply(all_of(*reader));
  CHECK(replica.engine.keyspace.database(0).size() == 0);
}

RUN_TESTS()
