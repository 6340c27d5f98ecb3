// How the engine turns a client's bytes into commands: batches, requests that no batch holds, commands that
// Python runs, and the requests that feed_native() leaves.
#include <functional>

#include "check.h"
#include "kv/engine/engine.h"
#include "kv/journal/log_record.h"
#include "kv_engine.h"

using namespace verbena;
using namespace verbena::kv;
using engines::heap;

namespace {

std::string command(const std::vector<std::string>& arguments) {
  std::string out;
  put_count(out, '*', arguments.size());
  for (const std::string& argument : arguments) put_argument(out, argument);
  return out;
}

class TestClient : public Client {
 public:
  using Client::Client;
  void queue_write() override { write_scheduled = false; }
};

// Replies with the name of each command that it runs, and calls `on_run`.
class Handler : public PythonHandler {
 public:
  void run(Client& client, Arguments arguments) override {
    ReplyWriter(client.out, client.version).simple("python " + std::string(arguments[0]));
    if (on_run) on_run(client, arguments);
  }
  void opened(Client&) override {}
  void closed(Client&) override {}
  void release(const std::vector<uint64_t>&) override {}
  void watched_changed(const std::vector<uint64_t>&) override {}
  void notify(uint32_t, char, const char*, std::string_view) override {}
  void tick() override {}
  bool dump(uint64_t, std::string&) override { return false; }
  void release_gil() override {}

  std::function<void(Client&, Arguments)> on_run;
};

struct Store {
  Store() {
    engine.set_handler(&handler);
    engine.add(client);
    engine.refresh_time();
  }
  ~Store() { engine.remove(client); }
  std::string feed(std::string_view bytes) {
    engine.feed(client, bytes);
    return std::exchange(client.out, {});
  }
  // The number of bytes that feed_native() used, and the replies.
  std::pair<size_t, std::string> feed_native(std::string_view bytes) {
    const size_t used = engine.feed_native(client, bytes);
    return {used, std::exchange(client.out, {})};
  }

  Handler handler;
  Engine engine{2, heap};
  TestClient client{1};
};

using Result = std::pair<size_t, std::string>;

const std::string kSet = command({"SET", "k", "1"}), kGet = command({"get", "k"});

// Requests that fill more than two batches; the last has more arguments than a batch has room for.
std::string many_requests(std::string& replies) {
  std::string requests;
  for (int i = 0; i < 40; ++i) {
    requests += command({"SET", "k" + std::to_string(i), std::to_string(i)});
    replies += "+OK\r\n";
  }
  std::vector<std::string> mget{"MGET"};
  replies += "*100\r\n";
  for (int i = 0; i < 100; ++i) {
    mget.push_back("k" + std::to_string(i % 40));
    put_argument(replies, std::to_string(i % 40));
  }
  return requests + command(mget);
}

}  // namespace

TEST("requests: more than fit in a batch, of any number of arguments, run in order") {
  std::string replies;
  const std::string requests = many_requests(replies);
  CHECK(Store().feed(requests) == replies);
  CHECK(Store().feed_native(requests) == Result(requests.size(), replies));
}

TEST("requests: however they are cut, the replies are the same") {
  std::string replies;
  const std::string requests = many_requests(replies) + command({"FOREIGN"}) + "PING\r\n\r\n" + kSet;
  replies += "+python FOREIGN\r\n+PONG\r\n+OK\r\n";
  for (const size_t step : {size_t{1}, size_t{7}, size_t{100}, requests.size()}) {
    Store store;
    std::string received;
    for (size_t at = 0; at < requests.size(); at += step) {
      received += store.feed(std::string_view(requests).substr(at, step));
    }
    CHECK(received == replies && store.client.in.empty());
    CHECK(store.client.commands == 44 && store.client.bytes_in == requests.size());
  }
}

TEST("requests: a command of a batch decides whether Python runs the later ones") {
  Store store;
  store.handler.on_run = [](Client& client, Arguments arguments) {
    client.python_dispatch = arguments[0] == "MULTI";
  };
  CHECK(store.feed(kSet + command({"MULTI"}) + command({"MULTI"}) + kGet + kGet) ==
        "+OK\r\n+python MULTI\r\n+python MULTI\r\n+python get\r\n$1\r\n1\r\n");
}

TEST("feed_native() stops before a command that is not native; feed() runs it and what follows") {
  const std::string foreign = command({"FOREIGN", "k"}), inline_foreign = "FOREIGN k\r\n";
  std::vector<std::string> long_foreign(100, "FOREIGN");  // more arguments than a batch has room for
  for (const std::string& request : {foreign, inline_foreign, command(long_foreign)}) {
    Store store;
    CHECK(store.feed_native(kSet + kGet + request + kGet) ==
          Result((kSet + kGet).size(), "+OK\r\n$1\r\n1\r\n"));
    CHECK(store.feed(request + kGet) == "+python FOREIGN\r\n$1\r\n1\r\n");
    CHECK(store.client.in.empty() && store.client.reader.is_fresh());
    CHECK(store.client.commands == 4);
  }
}

TEST("what feed_native() leaves is neither parsed nor looked up again") {
  Store store;
  std::string rest = command({"FOREIGN", "k"});
  CHECK(store.feed_native(rest) == Result(0, ""));
  // Would be a syntax error, and PERSIST would be run natively.
  rest.replace(0, 2, "!!").replace(rest.find("FOREIGN"), 7, "PERSIST");
  CHECK(store.feed(rest) == "+python PERSIST\r\n");
  CHECK(store.feed(command({"PERSIST", "k"})) == ":0\r\n");
}

TEST("feed_native() leaves an incomplete request and one that is not RESP") {
  for (size_t there = 0; there < kSet.size(); ++there) {
    Store store;
    CHECK(store.feed_native(kGet + kSet.substr(0, there)) == Result(kGet.size(), "$-1\r\n"));
    CHECK(store.feed(kSet.substr(0, there)).empty());
    CHECK(store.feed(kSet.substr(there) + kGet) == "+OK\r\n$1\r\n1\r\n");
  }
  for (const std::string wrong : {"*1\r\n!", "*1\r\n$-5\r\n"}) {
    Store store;
    CHECK(store.feed_native(kGet + wrong) == Result(kGet.size(), "$-1\r\n"));
    CHECK(!store.client.close_after_reply);
    CHECK(store.feed(wrong).starts_with("-ERR Protocol error"));
    CHECK(store.client.close_after_reply);
  }
}

TEST("feed_native() leaves everything if Python dispatches the client") {
  Store store;
  store.client.python_dispatch = true;
  CHECK(store.feed_native(kSet) == Result(0, ""));
  CHECK(store.client.commands == 0);
  CHECK(store.feed(kSet) == "+python SET\r\n");
  store.client.python_dispatch = false;
  store.engine.python_dispatch = true;
  CHECK(store.feed_native(kSet) == Result(0, ""));
  CHECK(store.feed(kSet) == "+python SET\r\n");
}

TEST("feed_native() leaves the commands from the first that a fenced slot holds") {
  Store store;
  store.engine.slots = std::make_unique<SlotTable>();
  store.engine.slots->owners.fill(SlotTable::kThisNode);
  const std::string other = command({"SET", "other", "2"});
  store.engine.slots->fenced[key_slot("k")] = true;
  CHECK(store.feed_native(other + kSet + other) == Result(other.size(), "+OK\r\n"));
  CHECK(store.client.blocked);
  CHECK(store.feed(kSet + other).empty());  // waits
  store.engine.slots->fenced[key_slot("k")] = false;
  store.engine.release_held();
  CHECK(store.client.out == "+OK\r\n+OK\r\n" && !store.client.blocked);
}

TEST("a client that a command of a batch resumes does not disturb the batch") {
  Store store;
  TestClient other{2};
  store.engine.add(other);
  other.blocked = true;
  store.engine.feed(other, kGet + kGet + command({"FOREIGN"}));
  CHECK(other.out.empty());
  store.handler.on_run = [&](Client& client, Arguments) {
    if (client.id == 1) store.engine.resume(other);
  };
  CHECK(store.feed(kSet + command({"FOREIGN"}) + kGet + kGet) ==
        "+OK\r\n+python FOREIGN\r\n$1\r\n1\r\n$1\r\n1\r\n");
  CHECK(other.out == "$1\r\n1\r\n$1\r\n1\r\n+python FOREIGN\r\n");
  store.engine.remove(other);
}

RUN_TESTS()
