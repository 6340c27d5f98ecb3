// Sessions between two nodes of one process: calls, long payloads, one-sided work, bulk, and links that
// break.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "session_side.h"
#include "transport/session/bulk.h"
#include "util/clock.h"
#include "verbs/router.h"

using namespace verbena;
using namespace verbena::transport;
using sides::bytes;
using sides::connect;
using sides::join;
using sides::kWindow;
using sides::Side;

namespace {

// Counts how often each call was executed, to tell a loss or a repetition.
class Counter final : public Handler {
 public:
  void handle(const Request& request) override {
    uint32_t number;
    CHECK(request.payload.size() >= sizeof number);
    std::memcpy(&number, request.payload.data(), sizeof number);
    executed.at(number).fetch_add(1);
    request.session.reply(request.call, request.payload);
  }
  std::vector<std::atomic<int>> executed = std::vector<std::atomic<int>>(4096);
};

std::string numbered(uint32_t number, size_t size = 24) {
  std::string text(size, 'x');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

}  // namespace

TEST("a call is answered, short, empty or too long for a buffer") {
  Side client, server;
  join(client, server);
  CHECK(client.call(method::echo, "hello") == "hello");
  CHECK(client.call(method::echo, "").empty());
  const std::string large(3'000'000, 'z');
  CHECK(client.call(method::echo, large) == large);
  for (int i = 0; i < 300; ++i) CHECK(client.call(method::echo, std::to_string(i)) == std::to_string(i));
  CHECK(server.call(method::echo, "the other way") == "the other way");
  const auto held = client.node->lock();
  CHECK(client.port->sends().count() <= 128);
}

TEST("a message that the peer does not take is refused without breaking anything") {
  Side client, server({.busy_poll_us = 20}, {.id = 1, .max_message_bytes = 100'000});
  join(client, server);
  client.call(method::echo, std::string(200'000, 'x'), Outcome::too_long);
  CHECK(client.call(method::echo, "still here") == "still here");
}

TEST("a request without a handler goes to the program, which answers it") {
  Side client, server;
  join(client, server);
  std::jthread program([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      for (const Event& event : server.requests->take()) {
        CHECK(event.kind == EventKind::request && event.method == 777);
        const auto held = server.node->lock();
        server.session->answered(event.call);
        server.session->reply(event.call, event.payload.span());
      }
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 50; ++i) CHECK(client.call(777, std::to_string(i)) == std::to_string(i));
}

TEST("calls under links that break are executed exactly once") {
  constexpr uint32_t kCalls = 1200, kThreads = 3;
  Side client, server;
  const auto counter = std::make_shared<Counter>();
  server.node->handle(500, counter);
  join(client, server);
  std::atomic<uint32_t> next{0}, running{kThreads};
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint32_t number; (number = next.fetch_add(1)) < kCalls;) {
        const std::string sent = numbered(number, number % 7 == 0 ? 2000 : 24);
        CHECK(client.call(500, sent) == sent);
      }
      --running;
    });
  }
  int breaks = 0;
  while (running > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    join(client, server);
    ++breaks;
  }
  threads.clear();
  CHECK(breaks > 0);
  for (uint32_t number = 0; number < kCalls; ++number) CHECK(counter->executed[number] == 1);
}

TEST("one-sided reads and writes reach exposed memory, and only that") {
  Side client, server;
  join(client, server);
  const auto memory = server.context->allocate(4096, {});
  std::memset(memory->data(), 'm', 4096);
  std::shared_ptr<ExposedRegion> region, foreign;
  {
    const auto held = server.node->lock();
    region =
        server.node->regions().expose(memory->data(), 4096, access::all, std::make_shared<Audience>(true));
    foreign =
        server.node->regions().expose(memory->data(), 4096, access::all, std::make_shared<Audience>(false));
  }
  const auto start = [&](Opcode opcode, uint64_t key, uint64_t offset, std::string& data) {
    const auto held = client.node->lock();
    return client.session->operate(opcode, key, offset, reinterpret_cast<std::byte*>(data.data()),
                                   static_cast<uint32_t>(data.size()), nullptr);
  };
  const auto operate = [&](Opcode opcode, uint64_t key, uint64_t offset, std::string data,
                           Outcome expected = Outcome::ok) {
    Operation* call = start(opcode, key, offset, data);
    CHECK(client.node->wait(*call, now_ns() + 10'000'000'000));
    CHECK(call->outcome == expected);
    client.node->end(*call);
    return data;
  };
  CHECK(operate(Opcode::read, region->key, 10, "....") == "mmmm");
  operate(Opcode::write, region->key, 100, "written");
  CHECK(std::memcmp(memory->data() + 100, "written", 7) == 0);
  operate(Opcode::read, region->key, 4094, "....", Outcome::out_of_range);
  operate(Opcode::read, foreign->key, 0, "....", Outcome::denied);
  operate(Opcode::read, 12345, 0, "....", Outcome::denied);
  join(client, server);
  CHECK(operate(Opcode::read, region->key, 100, ".......") == "written");
  RevokedRegion revoked;
  {
    const auto held = server.node->lock();
    revoked = server.node->revoke(*region);
  }
  revoked.finish();
  // The refused operation ends the link. On the next one it asks for the region again.
  std::string text = "....";
  Operation* refused = start(Opcode::read, region->key, 0, text);
  bool is_lost = false;
  for (const uint64_t deadline = now_ns() + 10'000'000'000; !is_lost && now_ns() < deadline;) {
    for (const Event& event : client.control->take()) is_lost |= event.kind == EventKind::link_lost;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(is_lost && !refused->finished);
  join(client, server);
  CHECK(client.node->wait(*refused, now_ns() + 10'000'000'000));
  CHECK(refused->outcome == Outcome::denied);
  client.node->end(*refused);
  operate(Opcode::read, region->key, 0, "....", Outcome::denied);
  CHECK(client.call(method::echo, "alive") == "alive");
}

TEST("a write that lost its link is repeated with the bytes that it was given") {
  Side client, server;
  const auto memory = server.context->allocate(4096, {});
  std::memset(memory->data(), 0, 4096);
  std::shared_ptr<ExposedRegion> region;
  {
    const auto held = server.node->lock();
    region =
        server.node->regions().expose(memory->data(), 4096, access::all, std::make_shared<Audience>(true));
  }
  const auto begin = [&](std::string text) {
    Operation* call = client.session->operate(Opcode::write, region->key, 0,
                                              reinterpret_cast<std::byte*>(text.data()), 7, nullptr);
    text.assign("changed");  // the caller may do so
    return call;
  };
  const auto finish = [&](Operation* call, const char* expected) {
    CHECK(client.node->wait(*call, now_ns() + 10'000'000'000));
    CHECK(call->outcome == Outcome::ok);
    CHECK(call->result.empty());
    client.node->end(*call);
    CHECK(std::memcmp(memory->data(), expected, 7) == 0);
  };
  Operation* call;
  {
    const auto held = client.node->lock();
    call = begin("waiting");  // for a link, then for its region
  }
  join(client, server);
  finish(call, "waiting");
  {
    const auto held = client.node->lock();
    call = begin("written");
    client.session->lose_link(Status::success, "test", false);
  }
  std::memset(memory->data(), 0, 4096);
  join(client, server);
  finish(call, "written");
}

TEST("a refused write does not take its own bytes for the reason") {
  Side client, server;
  join(client, server);
  const auto memory = server.context->allocate(64, {});
  std::shared_ptr<ExposedRegion> region;
  {
    const auto held = server.node->lock();
    region = server.node->regions().expose(memory->data(), 64, access::remote_read,
                                           std::make_shared<Audience>(true));
  }
  for (int i = 0; i < 2; ++i) {  // when the region is asked for, and when it is known
    std::string text = "bytes";
    Operation* call;
    {
      const auto held = client.node->lock();
      call = client.session->operate(Opcode::write, region->key, 0, reinterpret_cast<std::byte*>(text.data()),
                                     5, nullptr);
    }
    CHECK(client.node->wait(*call, now_ns() + 10'000'000'000));
    CHECK(call->outcome == Outcome::denied);
    CHECK(call->result.empty());
    client.node->end(*call);
  }
}

TEST("bulk transfers arrive whole while links break") {
  Side client, server;
  join(client, server);
  constexpr size_t kBytes = 24u << 20;
  const auto memory = server.context->allocate(kBytes, {});
  std::vector<std::byte> source(kBytes), back(kBytes);
  for (size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  std::shared_ptr<ExposedRegion> region;
  {
    const auto held = server.node->lock();
    region =
        server.node->regions().expose(memory->data(), kBytes, access::all, std::make_shared<Audience>(true));
  }
  std::atomic<bool> done{false};
  std::jthread breaker([&] {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      join(client, server);
    }
  });
  std::atomic<uint64_t> progress{0};
  const auto go_on = [] { return true; };
  const BulkOptions options{.fragment_bytes = 64 << 10, .depth = 8};
  constexpr size_t kPiece = (7u << 20) + 123;
  Registration from(source.data(), kBytes, 0, kPiece), to(back.data(), kBytes, access::local_write, kPiece);
  const BulkResult put_result = put(*client.node, *client.session, {region->key, 0, source.data(), kBytes},
                                    options, from, progress, go_on);
  CHECK(put_result.outcome == Outcome::ok && progress == kBytes);
  CHECK(std::memcmp(memory->data(), source.data(), kBytes) == 0);
  progress = 0;
  const BulkResult get_result =
      get(*client.node, *client.session, {region->key, 0, back.data(), kBytes}, options, to, progress, go_on);
  CHECK(get_result.outcome == Outcome::ok && progress == kBytes);
  CHECK(back == source);
  done = true;
}

TEST("a session that ends fails all waiting operations") {
  Side client, server;
  join(client, server);
  Operation* call;
  {
    const auto held = client.node->lock();
    call = client.session->call(777, bytes("nobody answers"));
  }
  std::jthread ender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    client.close_link();
    const auto held = client.node->lock();
    client.session->end("given up");
  });
  CHECK(client.node->wait(*call, now_ns() + 10'000'000'000));
  CHECK(call->outcome == Outcome::session_failed);
  client.node->end(*call);
}

RUN_TESTS()
