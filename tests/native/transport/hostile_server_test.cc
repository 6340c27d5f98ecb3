// A server that lies about its memory: where a region is, how long it is, what may be done with it, and what
// a store's layout lists. A client reports an outcome, stays within its own buffers and goes on with its
// session.
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "kv/client/reader.h"
#include "kv/protocol/session_layout.h"
#include "kv/store/index.h"
#include "session_side.h"
#include "transport/node/methods_layout.h"
#include "transport/session/bulk.h"
#include "util/clock.h"

using namespace verbena;
using namespace verbena::transport;
using sides::join;
using sides::Side;

namespace {

constexpr uint64_t kKey = 4711;
constexpr size_t kRegion = 4096, kBuffer = 64 << 10;
constexpr std::byte kGuard{0x5a};

// Replies with `answer`; with the key of a real, short region if `lends`.
class LyingHandler final : public Handler {
 public:
  void handle(const Request& request) override {
    ResolveReply reply = answer;
    if (lends) reply.rkey = request.session.link()->lend(*region);
    if (lends && reply.addr == 0) reply.addr = reinterpret_cast<uint64_t>(region->memory.data());
    const auto all = std::as_bytes(std::span(&reply, 1));
    std::vector<std::byte> bytes(all.begin(), all.end());
    bytes.resize(size);
    request.session.reply(request.call, bytes);
  }

  ResolveReply answer{};
  bool lends = false;
  size_t size = sizeof(ResolveReply);
  std::shared_ptr<ExposedRegion> region;
};

struct Rig {
  Side client, server;
  std::shared_ptr<LyingHandler> liar = std::make_shared<LyingHandler>();
  std::shared_ptr<Memory> memory = server.context->allocate(kRegion, {.peer_access = access::all});
  std::vector<std::byte> buffer = std::vector<std::byte>(3 * kBuffer, kGuard);

  Rig() {
    std::memset(memory->data(), 'm', kRegion);
    {
      const auto held = server.node->lock();
      liar->region = server.node->regions().expose(memory->data(), kRegion, access::all,
                                                   std::make_shared<Audience>(true));
    }
    server.node->handle(method::resolve, liar);
    join(client, server);
    dialer = std::jthread([this](const std::stop_token& end) { keep_linked(end); });
  }
  ~Rig() {
    dialer = {};
    RevokedRegion revoked;
    {
      const auto held = server.node->lock();
      revoked = server.node->revoke(*liar->region);
    }
    revoked.finish();
  }

  std::byte* middle() { return buffer.data() + kBuffer; }

  Outcome operate(Opcode opcode, uint64_t offset, uint32_t length) {
    Operation* call;
    {
      const auto held = client.node->lock();
      call = client.session->operate(opcode, kKey, offset, middle(), length, nullptr);
    }
    CHECK(call != nullptr);
    CHECK(client.node->wait(*call, now_ns() + 20'000'000'000));
    const Outcome outcome = call->outcome;
    client.node->end(*call);
    return outcome;
  }
  // The guards on both sides of the buffer are untouched, and the session works, perhaps with a new link.
  void check() {
    for (size_t i = 0; i < kBuffer; ++i) CHECK(buffer[i] == kGuard && buffer[2 * kBuffer + i] == kGuard);
    CHECK(client.call(method::echo, "still here") == "still here");
  }

  // Replaces a lost link until the rig ends: a refused operation asks once more, on the next link.
  void keep_linked(const std::stop_token& end) {
    while (!end.stop_requested()) {
      if (client.is_linked() && server.is_linked())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      else
        join(client, server);
    }
  }
  std::jthread dialer;
};

constexpr uint64_t kAbsurd[] = {0,          1,          kRegion,        kRegion + 1,       1ull << 32,
                                1ull << 46, 1ull << 63, UINT64_MAX - 7, UINT64_MAX - 4095, UINT64_MAX};

}  // namespace

TEST("a reply with an absurd address, length, key or access fails the operation") {
  Rig rig;
  std::mt19937_64 random(7);
  const auto any = [&] { return kAbsurd[random() % std::size(kAbsurd)]; };
  for (int round = 0; round < 150; ++round) {
    rig.liar->answer = {.addr = any(),
                        .length = any(),
                        .rkey = static_cast<uint32_t>(random()),
                        .access = static_cast<uint32_t>(random() % 32)};
    rig.liar->lends = false;
    const Opcode opcode = random() % 2 ? Opcode::read : Opcode::write;
    const uint64_t offset = any();
    CHECK(rig.operate(opcode, offset, 1 + static_cast<uint32_t>(random() % kBuffer)) != Outcome::ok);
    rig.check();
  }
}

TEST("a region that is shorter than its reply states fails the operation") {
  Rig rig;
  rig.liar->lends = true;
  for (const uint64_t length : {uint64_t{2 * kRegion}, uint64_t{1} << 40, UINT64_MAX}) {
    rig.liar->answer = {.addr = 0, .length = length, .rkey = 0, .access = access::all};
    CHECK(rig.operate(Opcode::read, 0, kRegion) == Outcome::ok);
    for (const Opcode opcode : {Opcode::read, Opcode::write}) {
      CHECK(rig.operate(opcode, 0, kRegion + 1) != Outcome::ok);
      rig.check();
      CHECK(rig.operate(opcode, length - 8, 8) != Outcome::ok);
      rig.check();
    }
  }
}

TEST("a reply of another size fails the operation") {
  Rig rig;
  for (const size_t size : std::initializer_list<size_t>{0, 1, 23, 25, 100'000}) {
    rig.liar->size = size;
    CHECK(rig.operate(Opcode::read, 0, 8) == Outcome::remote_failure);
    rig.check();
  }
}

TEST("bulk transfers with a server that lies end") {
  Rig rig;
  rig.liar->lends = true;
  rig.liar->answer = {.addr = 0, .length = 1ull << 40, .rkey = 0, .access = access::all};
  std::atomic<uint64_t> progress{0};
  int calls = 0;
  const auto go_on = [&] { return ++calls < 200; };
  const BulkTarget target{kKey, 0, rig.middle(), kBuffer};
  const BulkOptions options{.fragment_bytes = 16 << 10, .depth = 4};
  for (const bool reads : {true, false}) {
    Registration memory(rig.middle(), kBuffer, access::local_write);
    const BulkResult result =
        (reads ? get : put)(*rig.client.node, *rig.client.session, target, options, memory, progress, go_on);
    CHECK(result.outcome != Outcome::ok);
    rig.check();
  }
}

TEST("a layout whose chunks are shorter than it states sends the client back to messages") {
  Rig rig;
  rig.liar->lends = true;
  std::mt19937_64 random(11);
  for (int round = 0; round < 40; ++round) {
    for (size_t i = 0; i < kRegion; ++i) rig.memory->data()[i] = static_cast<std::byte>(random() % 8);
    const auto root = kv::make_location(0, 64 * (random() % 80));  // inside of the region, or behind it
    const kv::IndexRoot index{kv::make_location(0, 64 * (random() % 80)),
                              static_cast<uint32_t>(random() % 26), 0};
    if (kv::offset_of(root) + sizeof index <= kRegion)
      std::memcpy(rig.memory->data() + kv::offset_of(root), &index, sizeof index);
    rig.liar->answer = {.addr = 0, .length = 1ull << 40, .rkey = 0, .access = access::remote_read};
    std::string layout;
    const auto append = [&](const auto& value) {
      layout.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    append(kv::LayoutHeader{kv::kLayoutVersion, 1, 1, 0, {}});
    append(root);
    append(kv::ChunkEntry{kKey, random() % 2 ? UINT64_MAX : uint64_t{1} << 40});
    {
      kv::OneSidedReader reader(rig.client.node, rig.client.session, 0, 1'000'000'000, [] {});
      CHECK(reader.load(layout));
      CHECK(reader.get("a key").step != kv::Step::found);
    }
    rig.check();
  }
}

RUN_TESTS()
