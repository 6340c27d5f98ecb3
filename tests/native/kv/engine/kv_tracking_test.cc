// Who hears of which keys: readers once, prefixes together, nobody of his own if he wants so; and what is
// remembered stays bounded.
#include <set>

#include "check.h"
#include "kv/engine/tracking.h"
#include "kv_engine.h"

using namespace verbena::kv;
using engines::heap;

namespace {

using Keys = std::vector<std::string>;
using Clients = std::vector<uint64_t>;

bool is(const Tracking::Message& message, const Clients& clients, const Keys& keys) {
  return message.clients == clients && message.keys == keys;
}

struct Tracked {
  Keyspace keyspace{2, heap};
  Tracking tracking{keyspace};
  void change(std::string_view key, uint64_t current_client = 0) {
    keyspace.current_client = current_client;
    keyspace.changed(keyspace.database(0), key);
    keyspace.current_client = 0;
  }
};

}  // namespace

TEST("tracking: readers are notified of a change once, in the order of changes") {
  Tracked all;
  all.tracking.start(7, {}, {});
  all.tracking.start(3, {.skips_own = true}, {});
  for (const uint64_t client : {7u, 3u, 7u}) all.tracking.remember(client, "a");
  all.tracking.remember(3, "b");
  all.tracking.remember(99, "c");  // it does not track
  CHECK(all.tracking.keys() == 2 && all.tracking.items() == 3);
  all.change("other");
  CHECK(!all.tracking.has_messages());
  all.change("b");
  all.change("a", 3);
  all.change("a");
  const auto messages = all.tracking.take_messages();
  CHECK(messages.size() == 2 && is(messages[0], {3}, {"b"}) && is(messages[1], {7}, {"a"}));
  CHECK(!all.tracking.has_messages() && all.tracking.keys() == 0 && all.tracking.items() == 0);
}

TEST("tracking: prefixes are notified of many changes together, without the client's own last change") {
  Tracked all;
  const std::string_view users[] = {"user:"}, everything[] = {""};
  all.tracking.start(1, {.broadcasts = true}, users);
  all.tracking.start(2, {.broadcasts = true, .skips_own = true}, everything);
  all.tracking.remember(1, "user:1");  // it broadcasts: no message of its own
  CHECK(all.tracking.prefixes() == 2 && !all.tracking.has_broadcasts());
  all.change("user:2", 2);
  all.change("user:1", 2);
  all.change("user:1");
  all.change("other", 2);
  CHECK(!all.tracking.has_messages() && all.tracking.has_broadcasts());
  const auto messages = all.tracking.take_broadcasts();
  CHECK(messages.size() == 2 && is(messages[0], {2}, {"user:1"}) &&
        is(messages[1], {1}, {"user:1", "user:2"}));
  all.change("mine", 2);
  CHECK(all.tracking.take_broadcasts().empty());
  all.tracking.stop(1);
  all.change("user:1");
  CHECK(all.tracking.prefixes() == 1 && is(all.tracking.take_broadcasts().at(0), {2}, {"user:1"}));
}

TEST("tracking: a flush of all databases is one message to all, and what they had read is forgotten") {
  Tracked all;
  all.keyspace.mark_all_watchers_dirty(0);
  all.tracking.all_changed();
  CHECK(!all.tracking.has_messages());
  all.tracking.start(1, {.skips_own = true}, {});
  all.tracking.remember(1, "a");
  all.keyspace.current_client = 1;
  all.keyspace.mark_all_watchers_dirty(0);
  all.keyspace.mark_all_watchers_dirty(1);
  all.change("a");
  const auto messages = all.tracking.take_messages();
  CHECK(messages.size() == 1 && messages[0].clients == Clients{1} && !messages[0].keys);
  all.tracking.tidy();
}

TEST("tracking: keys beyond the limit are invalidated, and a lower limit applies soon") {
  Tracked all;
  all.tracking.start(1, {.skips_own = true}, {});
  all.tracking.limit(100);
  all.keyspace.current_client = 1;
  for (int i = 0; i < 1000; ++i) all.tracking.remember(1, std::to_string(i));
  CHECK(all.keyspace.current_client == 1 && all.tracking.keys() == 100 && all.tracking.items() == 100);
  std::set<std::string> told;
  for (const auto& message : all.tracking.take_messages()) told.insert(message.keys->at(0));
  CHECK(told.size() == 900);
  all.tracking.limit(0);
  for (int i = 0; i < 20'000; ++i) all.tracking.remember(1, "more:" + std::to_string(i));
  CHECK(all.tracking.keys() == 20'100);
  all.tracking.limit(10);
  for (int i = 0; i < 20; ++i) all.tracking.tidy();
  CHECK(all.tracking.keys() == 10);
}

TEST("tracking: closed clients leave no entries while other clients connect and disconnect") {
  Tracked all;
  all.tracking.start(1, {}, {});
  for (int i = 0; i < 3000; ++i) all.tracking.remember(1, std::to_string(i * 3));
  for (uint64_t client = 2; client < 40; ++client) {
    all.tracking.start(client, {}, {});
    for (int i = 0; i < 9000; ++i) all.tracking.remember(client, std::to_string(i));
    all.tracking.tidy();
    all.tracking.stop(client);
  }
  CHECK(all.tracking.items() < 39u * 9000);
  for (int i = 0; i < 50; ++i) all.tracking.tidy();
  CHECK(all.tracking.keys() == 3000 && all.tracking.items() == 3000);
  all.change("3");
  CHECK(is(all.tracking.take_messages().at(0), {1}, {"3"}));
  all.tracking.stop(1);
  all.tracking.stop(1);
  CHECK(all.tracking.keys() == 0 && all.tracking.items() == 0);
  all.change("6");
  CHECK(!all.tracking.has_messages());
}

TEST("tracking: an expiry or eviction counts as no client's own change") {
  Tracked all;
  all.tracking.start(1, {.skips_own = true}, {});
  all.keyspace.set_now(1000);
  all.keyspace.database(0).set({}, "a", "value", 2000);
  all.tracking.remember(1, "a");
  all.keyspace.set_now(3000);
  all.keyspace.current_client = 1;
  CHECK(!all.keyspace.database(0).find("a"));
  CHECK(all.keyspace.current_client == 1 && is(all.tracking.take_messages().at(0), {1}, {"a"}));
}

RUN_TESTS()
