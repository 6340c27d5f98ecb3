// A cluster node: which commands it serves, redirects or holds, and digests of slots.
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

class TestClient : public Client {
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

// An engine that owns all slots.
struct Node {
  Node() : engine(1, heap) {
    engine.refresh_time();
    engine.slots = std::make_unique<SlotTable>();
    engine.slots->owners.fill(SlotTable::kThisNode);
    engine.slots->addresses = {"", "10.0.0.2:7000"};
    engine.add(client);
  }
  ~Node() { engine.remove(client); }
  std::string run(std::initializer_list<std::string_view> arguments) {
    engine.feed(client, command(arguments));
    return std::exchange(client.out, {});
  }
  Engine engine;
  TestClient client{1};
};

std::bitset<kSlotCount> all_slots() { return std::bitset<kSlotCount>().set(); }

}  // namespace

TEST("slots: a hash tag at any position decides, an empty or open one does not") {
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

TEST("slot check: keys of other nodes are redirected, keys of several slots are refused") {
  Node node;
  const uint16_t slot = key_slot("foo");
  CHECK(node.run({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->owners[slot] = 1;
  CHECK(node.run({"GET", "foo"}) == "-MOVED " + std::to_string(slot) + " 10.0.0.2:7000\r\n");
  CHECK(node.run({"GET", "bar"}) == "$-1\r\n");
  CHECK(node.run({"MGET", "bar", "baz"}).starts_with("-CROSSSLOT"));
  CHECK(node.run({"MGET", "{bar}1", "{bar}2"}) == "*2\r\n$-1\r\n$-1\r\n");
  node.engine.slots->owners[slot] = SlotTable::kUnassigned;
  CHECK(node.run({"GET", "foo"}) == "-CLUSTERDOWN Hash slot not served\r\n");
  CHECK(node.run({"PING"}) == "+PONG\r\n");
  CHECK(node.run({"GET"}).starts_with("-ERR wrong number"));
}

TEST("slot check: a moving slot replies ASK, and accepts commands after ASKING") {
  Node node;
  const uint16_t slot = key_slot("foo");
  CHECK(node.run({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->migrating[slot] = 1;
  CHECK(node.run({"GET", "foo"}) == "$1\r\n1\r\n");
  CHECK(node.run({"GET", "{foo}x"}).starts_with("-ASK "));
  CHECK(node.run({"MGET", "foo", "{foo}x"}).starts_with("-TRYAGAIN"));
  node.engine.slots->migrating[slot] = 0;
  node.engine.slots->owners[slot] = 1;
  node.engine.slots->importing[slot] = true;
  CHECK(node.run({"SET", "{foo}x", "2"}).starts_with("-MOVED "));
  node.client.asking = true;
  CHECK(node.run({"SET", "{foo}x", "2"}) == "+OK\r\n");
  CHECK(node.run({"GET", "{foo}x"}).starts_with("-MOVED "));  // ASKING holds for one command
}

TEST("slot check: a replica serves READONLY clients, and no writes") {
  Node node;
  node.engine.slots->owners.fill(1);
  node.engine.slots->primary = 1;
  CHECK(node.run({"GET", "foo"}).starts_with("-MOVED "));
  node.client.reads_replica = true;
  CHECK(node.run({"GET", "foo"}) == "$-1\r\n");
  CHECK(node.run({"SET", "foo", "1"}).starts_with("-MOVED "));
}

TEST("slot check: nothing is served after the lease") {
  Node node;
  node.engine.slots->lease_ends_ns = now_ns() + 3'600'000'000'000;
  CHECK(node.run({"SET", "foo", "1"}) == "+OK\r\n");
  node.engine.slots->lease_ends_ns = now_ns();
  CHECK(node.run({"SET", "foo", "2"}).starts_with("-CLUSTERDOWN"));
  CHECK(node.run({"GET", "foo"}).starts_with("-CLUSTERDOWN"));
}

TEST("slot check: commands on a fenced slot wait, keep their order, and go to the slot's new owner") {
  Node node;
  const uint16_t slot = key_slot("foo");
  node.engine.slots->fenced[slot] = true;
  CHECK(node.run({"SET", "bar", "0"}) == "+OK\r\n");  // another slot
  CHECK(node.run({"SET", "foo", "1"}).empty());
  CHECK(node.client.blocked);
  CHECK(node.run({"GET", "foo"}).empty());
  CHECK(node.run({"GET", "bar"}).empty());
  node.engine.slots->fenced[slot] = false;
  node.engine.release_held();
  CHECK(std::exchange(node.client.out, {}) == "+OK\r\n$1\r\n1\r\n$1\r\n0\r\n");
  node.engine.slots->fenced[slot] = true;
  CHECK(node.run({"GET", "foo"}).empty());
  node.engine.slots->fenced[slot] = false;
  node.engine.slots->owners[slot] = 1;
  node.engine.release_held();
  CHECK(std::exchange(node.client.out, {}).starts_with("-MOVED "));
}

TEST("digest: two stores with equal contents have equal digests, whatever their history") {
  Node one, other;
  std::mt19937 random(11);
  SlotDigest here(one.engine, all_slots());
  for (int round = 0; round < 20'000; ++round) {
    const std::string key = "key:" + std::to_string(random() % 500);
    const std::string value = std::to_string(random());
    if (random() % 4) {
      one.run({"SET", key, value});
    } else {
      one.run({"DEL", key});
    }
    if (round % 64 == 0) here.work(now_ns() + 10'000);
  }
  Database& database = one.engine.keyspace.database(0);
  uint64_t cursor = 0;
  do {
    cursor = database.scan(cursor, 100, [&](Entry entry) { other.run({"SET", entry.key(), entry.value()}); });
  } while (cursor != 0);
  SlotDigest there(other.engine, all_slots());
  const auto mine = here.finish(0), theirs = there.finish(0);
  CHECK(mine.sum == theirs.sum && mine.keys == theirs.keys && mine.keys == database.size());
  other.run({"SET", "one more", ""});
  CHECK(there.finish(0).sum != mine.sum);
  other.run({"DEL", "one more"});
  CHECK(there.finish(0).sum == mine.sum);
  other.run({"APPEND", "key:1", "x"});
  CHECK(there.finish(0).sum != mine.sum);
}

TEST("digest: covers only the selected slots and unexpired keys, and changes with a flush") {
  Node node;
  std::bitset<kSlotCount> slots;
  slots.set(key_slot("{a}"));
  SlotDigest digest(node.engine, slots);
  CHECK(digest.finish(0).keys == 0);
  node.run({"SET", "{a}1", "x"});
  node.run({"SET", "{b}1", "x"});
  CHECK(digest.finish(0).keys == 1);
  const auto before = digest.finish(0).sum;
  const uint64_t later = node.engine.keyspace.now_ms() + 1'000'000;
  node.run({"SET", "{a}2", "x", "PXAT", std::to_string(later)});
  CHECK(digest.finish(later - 1).keys == 2);
  CHECK(digest.finish(later).keys == 1 && digest.finish(later).sum == before);
  node.engine.keyspace.database(0).clear();
  node.engine.keyspace.mark_all_watchers_dirty(0);
  CHECK(digest.finish(0).keys == 0 && digest.finish(0).sum == 0);
}

TEST("sweep: the slots are empty afterwards, and others are unchanged") {
  Node node;
  for (int i = 0; i < 3000; ++i) {
    node.run({"SET", "{a}" + std::to_string(i), "x"});
    node.run({"SET", "{b}" + std::to_string(i), "x"});
  }
  std::bitset<kSlotCount> slots;
  slots.set(key_slot("{a}"));
  SlotSweep sweep(node.engine, slots);
  while (!sweep.work(now_ns() + 1000)) {
  }
  CHECK(sweep.removed() == 3000);
  CHECK(node.engine.keyspace.database(0).size() == 3000);
  CHECK(node.run({"GET", "{a}7"}) == "$-1\r\n" && node.run({"GET", "{b}7"}) == "$1\r\nx\r\n");
}
RUN_TESTS()
