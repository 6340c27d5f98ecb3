// Who waits for whom: sessions for the engine's lock, and not for long; the loop for something to do.
#include <cstdlib>
#include <semaphore>
#include <thread>

#include "check.h"
#include "kv/frontends/session_frontend.h"
#include "kv/protocol/session_layout.h"
#include "kv_engine.h"
#include "session_side.h"

using namespace verbena::kv;
using engines::heap;
using sides::join;
using sides::Side;
using Asked = verbena::transport::Operation;

namespace {

// A store that sessions may talk to, and one that does.
struct Served {
  Served()
      : loop(engine), gate(engine, loop, theirs.node, std::make_shared<verbena::transport::Audience>(false)) {
    join(ours, theirs);
    thread = std::thread([this] { loop.run(); });
    CHECK(answer_to(*talk("*1\r\n$4\r\nPING\r\n")) == "+PONG\r\n");  // the loop knows the stream from now on
  }
  ~Served() { end_loop(); }
  void end_loop() {
    if (!thread.joinable()) return;
    loop.stop();
    thread.join();
  }
  // Says it, and returns when the other end has dealt with it, whatever it did.
  Asked* talk(const std::string& request) {
    static const uint32_t method = verbena::transport::method::of_name("kv");
    const StreamHeader header{.stream = 1};
    const std::string payload = std::string(reinterpret_cast<const char*>(&header), sizeof header) + request;
    const uint64_t before = gate.requests();
    Asked* call;
    {
      const auto held = ours.node->lock();
      call = ours.session->call(method, sides::bytes(payload));
    }
    while (gate.requests() == before) std::this_thread::yield();
    const auto dealt_with = theirs.node->lock();  // which it is with this lock in hand
    return call;
  }
  bool is_answered(Asked& call) { return ours.node->wait(call, verbena::now_ns()); }
  std::string answer_to(Asked& call) {
    CHECK(ours.node->wait(call, verbena::now_ns() + 20'000'000'000));
    const auto answer = call.answer();
    std::string text(reinterpret_cast<const char*>(answer.data()), answer.size());
    ours.node->end(call);
    return text;
  }
  std::string value_of(std::string_view key) {
    const auto held = engine.lock();
    const Entry entry = engine.keyspace.database(0).find(key);
    return entry ? std::string(entry.value()) : "";
  }

  Side ours, theirs;
  Engine engine{1, heap};
  EventLoop loop;
  SessionFrontend gate;
  std::thread thread;
};

std::string get() { return "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"; }
std::string set(char value) { return std::string("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n") + value + "\r\n"; }

}  // namespace

TEST("lock_soon() fails while another thread holds the lock, and acquires a free lock") {
  Engine engine(1, heap);
  CHECK(engine.lock_soon().owns_lock());
  std::binary_semaphore taken{0}, enough{0};
  std::thread other([&] {
    const auto held = engine.lock();
    taken.release();
    enough.acquire();
  });
  taken.acquire();
  CHECK(!engine.lock_soon().owns_lock());  // the other one keeps it until this has been looked at
  enough.release();
  other.join();
  const auto held = engine.lock_soon();
  CHECK(held.owns_lock() && engine.lock_soon().owns_lock());  // once more by who has it
}

TEST("a session's command runs on the node's thread: no loop need be there") {
  Served served;
  served.end_loop();
  CHECK(served.answer_to(*served.talk(set('1'))) == "+OK\r\n");
  CHECK(served.value_of("k") == "1");
}

TEST("commands that find the engine busy go by the loop, in their order") {
  Served served;
  std::binary_semaphore busy{0}, enough{0};
  served.loop.post([&] {  // a turn that takes long
    busy.release();
    enough.acquire();
  });
  busy.acquire();
  Asked* const first = served.talk(set('1'));
  Asked* const second = served.talk(set('2'));
  CHECK(!served.is_answered(*first) && !served.is_answered(*second));
  enough.release();
  CHECK(served.answer_to(*first) == "+OK\r\n" && served.answer_to(*second) == "+OK\r\n");
  CHECK(served.value_of("k") == "2");
}

TEST("a command does not overtake one that waits for the loop, though the engine is free") {
  Served served;
  CHECK(served.answer_to(*served.talk(set('1'))) == "+OK\r\n");
  served.end_loop();
  Asked* const foreign = served.talk("*1\r\n$8\r\nNONSENSE\r\n");  // the loop's to answer
  Asked* const later = served.talk(set('2'));
  CHECK(!served.is_answered(*foreign) && !served.is_answered(*later));
  CHECK(served.value_of("k") == "1");
}

TEST("the native commands at the start of a message run at once, and the loop replies for all") {
  const std::string requests = set('1') + get() + "*1\r\n$8\r\nNONSENSE\r\n" + set('2') + get();
  Served served;
  Asked* const mixed = served.talk(requests);
  Asked* const later = served.talk(get());
  CHECK(served.answer_to(*mixed) == "+OK\r\n$1\r\n1\r\n-ERR unknown command\r\n+OK\r\n$1\r\n2\r\n");
  CHECK(served.answer_to(*later) == "$1\r\n2\r\n");
  CHECK(served.answer_to(*served.talk(set('3'))) == "+OK\r\n");
  served.end_loop();
  Asked* const waiting = served.talk(requests);
  CHECK(served.value_of("k") == "1" && !served.is_answered(*waiting));
}

TEST("a client whose reply exceeds its output limit is removed, and its stream stays closed") {
  Served served;
  CHECK(served.answer_to(*served.talk(set('1'))) == "+OK\r\n");
  uint64_t first;
  {
    const auto held = served.engine.lock();
    first = served.engine.clients().begin()->first;
    served.engine.find(first)->out_limit = 8;
  }
  CHECK(served.answer_to(*served.talk(get() + get())) == "$1\r\n1\r\n$1\r\n1\r\n");
  CHECK(served.answer_to(*served.talk(get())).find("closed") != std::string::npos);
  const auto held = served.engine.lock();
  CHECK(served.engine.find(first) == nullptr && served.engine.counters.output_disconnections == 1);
}

TEST("the loop sleeps long unless memory is to be given back, a copy is made, or a timer is due") {
  class Copy : public Background {
    bool work(uint64_t) override { return true; }
  } copy;
  Engine engine(1, heap);
  EventLoop loop(engine);
  engine.keyspace.set_now(1'000);
  CHECK(loop.timeout_ms() == 100);
  engine.keyspace.expose();
  Database& database = engine.keyspace.database(0);
  database.set({}, "k", "1", 0);
  CHECK(loop.timeout_ms() == 100);
  database.set(database.find("k"), "k", "2", 0);  // somebody may be reading the former value
  CHECK(engine.keyspace.has_retired() && loop.timeout_ms() == 10);
  loop.set_timer(1'004);
  CHECK(loop.timeout_ms() == 4);
  loop.set_timer(900);
  CHECK(loop.timeout_ms() == 0);
  loop.set_timer(0);
  engine.background = &copy;
  CHECK(loop.timeout_ms() == 1);
  engine.background = nullptr;
  engine.keyspace.reclaim(verbena::now_ns() + 1'000'000'000, ~uint64_t{0});
  CHECK(!engine.keyspace.has_retired() && loop.timeout_ms() == 100);
}

RUN_TESTS()
