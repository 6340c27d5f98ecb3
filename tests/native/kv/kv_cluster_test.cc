// A cluster's node: who may be served here, who waits, and sums of what slots hold.
#include <cstdlib>
#include <random>

#include "check.h"
#include "kv/journal/log_record.h"
#include "kv/store/slot_digest.h"
#include "kv_engine.h"
#include "util/clock.h"

using namespace verbena;
using namespace verbena::kv;
using engines::heap;

namespace {

class Someone : public Client {
 public:
  using Client::Client;
  void queue_write() override { write_scheduled = false; }
};

std::string command(std::initializer_list<std::string_view> arguments) {
  std::string out = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string_view argument : arguments) {
    out.append("$" + std::to_string(argument.size()) + "\r\n").append(argument).append("\r\n");
  }
  return out;
}

// An engine whose slots are all its own.
struct Node {
  Node() : engine(1, heap) {
    engine.refresh_time();
    engine.slots = std::make_unique<SlotTable>();
    engine.slots->owners.fill(SlotTable::kThisNode);
    engine.slots->addresses = {"", "10.0.0.2:7000"};
    engine.add(client);
  }
  ~Node() { engine.remove(client); }
  std::string say(std::initializer_list<std::string_view> arguments) {
    engine.feed(client, command(arguments));
    return std::exchange(client.out, {});
  }
  Engine engine;
  Someone client{1};
};

std::bitset<kSlotCount> all_slots() { return std::bitset<kSlotCount>().set(); }

}  // namespace

TEST("slots: a tag decides wherever it stands, and an empty or open one does not") {
  for (size_t before = 0; before < 20; ++before) {
    const std::string front(before, 'k');
    for (const std::string_view back : {"", "k", "{", "}", "{other}", "kkkkkkkkkkkkkkkk{"}) {
      CHECK(key_slot(front + "{tag}" + std::string(back)) == key_slot("tag"));
    }
    CHECK(key_slot("{" + front + "{}}") == key_slot(front + "{"));
  }
  CHECK(key_slot("123456789") == 0x31c3);
  CHECK(key_slot("{123456789") != 0x31c3);
  CHECK(key_slot("{}123456789") != 0x31c3);
}

TEST("gate: keys of others are sent there, keys of several slots are refused") {
  Node node;
  const uint16_t slot = key_slot("foo");
  CHECK(node.say({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->owners[slot] = 1;
  CHECK(node.say({"GET", "foo"}) == "-MOVED " + std::to_string(slot) + " 10.0.0.2:7000\r\n");
  CHECK(node.say({"GET", "bar"}) == "$-1\r\n");
  CHECK(node.say({"MGET", "bar", "baz"}).starts_with("-CROSSSLOT"));
  CHECK(node.say({"MGET", "{bar}1", "{bar}2"}) == "*2\r\n$-1\r\n$-1\r\n");
  node.engine.slots->owners[slot] = SlotTable::kUnassigned;
  CHECK(node.say({"GET", "foo"}) == "-CLUSTERDOWN Hash slot not served\r\n");
  CHECK(node.say({"PING"}) == "+PONG\r\n");
  CHECK(node.say({"GET"}).starts_with("-ERR wrong number"));
}

TEST("gate: a slot on its way asks, and takes those who ask") {
  Node node;
  const uint16_t slot = key_slot("foo");
  CHECK(node.say({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->migrating[slot] = 1;
  CHECK(node.say({"GET", "foo"}) == "$1\r\n1\r\n");
  CHECK(node.say({"GET", "{foo}x"}).starts_with("-ASK "));
  CHECK(node.say({"MGET", "foo", "{foo}x"}).starts_with("-TRYAGAIN"));
  node.engine.slots->migrating[slot] = 0;
  node.engine.slots->owners[slot] = 1;
  node.engine.slots->importing[slot] = true;
  CHECK(node.say({"SET", "{foo}x", "2"}).starts_with("-MOVED "));
  node.client.asking = true;
  CHECK(node.say({"SET", "{foo}x", "2"}) == "+OK\r\n");
  CHECK(node.say({"GET", "{foo}x"}).starts_with("-MOVED "));  // once only
}

TEST("gate: a replica serves those who read, and nobody who writes") {
  Node node;
  node.engine.slots->owners.fill(1);
  node.engine.slots->primary = 1;
  CHECK(node.say({"GET", "foo"}).starts_with("-MOVED "));
  node.client.reads_replica = true;
  CHECK(node.say({"GET", "foo"}) == "$-1\r\n");
  CHECK(node.say({"SET", "foo", "1"}).starts_with("-MOVED "));
}

TEST("gate: nothing is served after the lease") {
  Node node;
  node.engine.slots->lease_ends_ns = now_ns() + 3'600'000'000'000;
  CHECK(node.say({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->lease_ends_ns = now_ns();
  CHECK(node.say({"SET", "foo", "2"}).starts_with("-CLUSTERDOWN"));
  CHECK(node.say({"GET", "foo"}).starts_with("-CLUSTERDOWN"));
}

TEST("gate: who comes to a fenced slot waits, keeps his order, and goes on where the slot is then") {
  Node node;
  const uint16_t slot = key_slot("foo");
  node.engine.slots->fenced[slot] = true;
  CHECK(node.say({"SET", "bar", "0"}) == "+OK\r\n");  // another slot
  CHECK(node.say({"SET", "foo", "1"}).empty());
  CHECK(node.client.blocked);
  CHECK(node.say({"GET", "foo"}).empty());
  CHECK(node.say({"GET", "bar"}).empty());
  node.engine.slots->fenced[slot] = false;
  node.engine.release_held();
  CHECK(std::exchange(node.client.out, {}) == "+OK\r\n$1\r\n1\r\n$1\r\n0\r\n");
  node.engine.slots->fenced[slot] = true;
  CHECK(node.say({"GET", "foo"}).empty());
  node.engine.slots->fenced[slot] = false;
  node.engine.slots->owners[slot] = 1;
  node.engine.release_held();
  CHECK(std::exchange(node.client.out, {}).starts_with("-MOVED "));
}

TEST("digest: two stores with the same contents have the same sum, however they came by them") {
  Node one, other;
  std::mt19937 random(11);
  SlotDigest here(one.engine, all_slots());
  for (int round = 0; round < 20'000; ++round) {
    const std::string key = "key:" + std::to_string(random() % 500);
    const std::string value = std::to_string(random());
    if (random() % 4) {
      one.say({"SET", key, value});
    } else {
      one.say({"DEL", key});
    }
    if (round % 64 == 0) here.work(now_ns() + 10'000);
  }
  Database& database = one.engine.keyspace.database(0);
  uint64_t cursor = 0;
  do {
    cursor = database.scan(cursor, 100, [&](Entry entry) { other.say({"SET", entry.key(), entry.value()}); });
  } while (cursor != 0);
  SlotDigest there(other.engine, all_slots());
  const auto mine = here.finish(0), theirs = there.finish(0);
  CHECK(mine.sum == theirs.sum && mine.keys == theirs.keys && mine.keys == database.size());
  other.say({"SET", "one more", ""});
  CHECK(there.finish(0).sum != mine.sum);
  other.say({"DEL", "one more"});
  CHECK(there.finish(0).sum == mine.sum);
  other.say({"APPEND", "key:1", "x"});
  CHECK(there.finish(0).sum != mine.sum);
}

TEST("digest: only these slots count, what has expired does not, and a flush is noticed") {
  Node node;
  std::bitset<kSlotCount> slots;
  slots.set(key_slot("{a}"));
  SlotDigest digest(node.engine, slots);
  CHECK(digest.finish(0).keys == 0);
  node.say({"SET", "{a}1", "x"});
  node.say({"SET", "{b}1", "x"});
  CHECK(digest.finish(0).keys == 1);
  const auto before = digest.finish(0).sum;
  const uint64_t later = node.engine.keyspace.now_ms() + 1'000'000;
  node.say({"SET", "{a}2", "x", "PXAT", std::to_string(later)});
  CHECK(digest.finish(later - 1).keys == 2);
  CHECK(digest.finish(later).keys == 1 && digest.finish(later).sum == before);
  node.engine.keyspace.database(0).clear();
  node.engine.keyspace.mark_all_watchers_dirty(0);
  CHECK(digest.finish(0).keys == 0 && digest.finish(0).sum == 0);
}

TEST("sweep: the slots are empty afterwards, and others are as they were") {
  Node node;
  for (int i = 0; i < 3000; ++i) {
    node.say({"SET", "{a}" + std::to_string(i), "x"});
    node.say({"SET", "{b}" + std::to_string(i), "x"});
  }
  std::bitset<kSlotCount> slots;
  slots.set(key_slot("{a}"));
  SlotSweep sweep(node.engine, slots);
  while (!sweep.work(now_ns() + 1000)) {
  }
  CHECK(sweep.removed() == 3000);
  CHECK(node.engine.keyspace.database(0).size() == 3000);
  CHECK(node.say({"GET", "{a}7"}) == "$-1\r\n" && node.say({"GET", "{b}7"}) == "$1\r\nx\r\n");
}
RUN_TESTS()
