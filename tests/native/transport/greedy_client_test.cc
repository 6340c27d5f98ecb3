// A client that takes more of a node's memory or time than it may: requests whose replies it does not read,
// requests faster than they are served, checks of long ranges. Requests beyond the limits fail; others work.
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "session_side.h"
#include "transport/node/methods.h"
#include "util/clock.h"

using namespace verbena;
using namespace verbena::transport;
using sides::bytes;
using sides::join;
using sides::kWindow;
using sides::Side;

namespace {

constexpr uint64_t kLongest = 100'000;
constexpr uint32_t kSlowMethod = 777;  // served by the program

template <typename Condition>
void wait_until(Condition condition) {
  const uint64_t deadline = now_ns() + 20'000'000'000;
  while (!condition()) {
    CHECK(now_ns() < deadline);
    std::this_thread::yield();
  }
}

struct Pending {
  Side& client;
  std::vector<Operation*> calls;

  void start(uint32_t method, const std::string& payload, int count) {
    const auto held = client.node->lock();
    start_locked(method, payload, count);
  }
  void start_locked(uint32_t method, const std::string& payload, int count) {
    for (int i = 0; i < count; ++i) {
      calls.push_back(client.session->call(method, bytes(payload)));
      CHECK(calls.back() != nullptr);
    }
  }
  // Waits for all calls, and returns how many of them had this outcome.
  int finish(Outcome outcome) {
    int found = 0;
    for (Operation* call : calls) {
      CHECK(client.node->wait(*call, now_ns() + 20'000'000'000));
      found += call->outcome == outcome;
      client.node->end(*call);
    }
    calls.clear();
    return found;
  }
};

}  // namespace

TEST("replies that a peer does not read take a bounded part of the memory") {
  Side client;
  Side server({.busy_poll_us = 20}, {.id = 1, .max_message_bytes = kLongest});
  join(client, server);
  Pending pending{client, {}};
  constexpr int kCalls = kWindow - 4;  // fewer than may be sent before an acknowledgement
  {
    const auto held = client.node->lock();  // the client receives and acknowledges nothing
    pending.start_locked(method::echo, std::string(kLongest, 'x'), kCalls);
    wait_until([&] { return server.received() == kCalls; });
    const auto at_server = server.node->lock();
    CHECK(server.session->unacknowledged_bytes() >= 2 * kLongest);
    CHECK(server.session->unacknowledged_bytes() <= 3 * kLongest + kCalls * 1024);
  }
  const int busy = pending.finish(Outcome::busy);
  CHECK(busy >= kCalls - 3 && busy < kCalls);
  CHECK(client.call(method::echo, "still here") == "still here");
}

TEST("requests that are served slowly take a bounded part of the memory") {
  Side client;
  Side server({.busy_poll_us = 20}, {.id = 1, .max_message_bytes = kLongest});
  join(client, server);
  Pending pending{client, {}};
  const std::string longest(kLongest, 'x');
  pending.start(kSlowMethod, longest, 6);
  wait_until([&] { return server.received() == 6; });
  std::vector<uint64_t> serving;
  for (const Event& event : server.requests->take()) serving.push_back(event.call);
  CHECK(serving.size() == 4);
  pending.start(kSlowMethod, "a short one", 1);
  wait_until([&] { return server.received() == 7; });
  for (const Event& event : server.requests->take()) serving.push_back(event.call);
  CHECK(serving.size() == 5);
  for (const uint64_t call : serving) {
    const auto held = server.node->lock();
    server.session->answered(call);
    server.session->reply(call, {});
  }
  CHECK(pending.finish(Outcome::busy) == 2);
  pending.start(kSlowMethod, longest, 1);  // there is room again
  wait_until([&] {
    for (const Event& event : server.requests->take()) {
      const auto held = server.node->lock();
      server.session->answered(event.call);
      return server.session->reply(event.call, {});
    }
    return false;
  });
  CHECK(pending.finish(Outcome::ok) == 1);
}

TEST("a check of a range longer than a fragment is refused before the region is looked up") {
  Side client, server;
  join(client, server);
  const std::vector<std::byte> memory(1000, std::byte{1});
  std::shared_ptr<ExposedRegion> region;
  {
    const auto held = server.node->lock();
    region = server.node->regions().expose(const_cast<std::byte*>(memory.data()), memory.size(),
                                           access::remote_read, std::make_shared<Audience>(true));
  }
  const auto request = [&](uint64_t length) {
    const RangeRequest fields{.key = region->key, .offset = 0, .length = length, .crc = 0, .unused = 0};
    return std::string(reinterpret_cast<const char*>(&fields), sizeof fields);
  };
  CHECK(client.call(method::checksum, request(1000)).size() == sizeof(uint32_t));
  for (const uint32_t number : {method::checksum, method::verify}) {
    client.call(number, request(kMaxFragment + 1), Outcome::out_of_range);
    client.call(number, request(UINT64_MAX), Outcome::out_of_range);
  }
  RevokedRegion revoked;
  {
    const auto held = server.node->lock();
    revoked = server.node->revoke(*region);
  }
  revoked.finish();
}

RUN_TESTS()
