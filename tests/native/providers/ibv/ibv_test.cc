// The libibverbs provider: addresses, GID choice and slots without a device; and, where there is one, a
// connection with traffic and its end.
#include <poll.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "providers/ibv/cm/address.h"
#include "providers/ibv/device/gids.h"
#include "providers/ibv/device/removal.h"
#include "providers/ibv/options.h"
#include "providers/ibv/provider.h"
#include "providers/ibv/slots.h"
#include "util/error.h"

namespace {

using namespace verbena;
using namespace verbena::ibv;

constexpr int kDeadlineMs = 10'000;

bool splits(const char* text, const char* host, uint16_t port) {
  const auto parts = split_address(text);
  return parts && parts->host == host && parts->port == port;
}

Gid ipv4(uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}; }
Gid link_local(uint8_t last) { return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}; }
Gid global(uint8_t last) { return {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}; }

PortAttributes table(std::vector<Gid> gids, std::vector<std::string> types) {
  PortAttributes port;
  port.gids = std::move(gids);
  port.gid_types = std::move(types);
  return port;
}

bool readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, kDeadlineMs) == 1;
}

// One side of a connection: a queue pair and a registered buffer.
struct End {
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd = context->alloc_pd();
  std::shared_ptr<CompletionQueue> cq = context->create_cq(64);
  std::shared_ptr<QueuePair> qp = pd->create_qp({.send_cq = cq, .recv_cq = cq});
  std::vector<char> buffer = std::vector<char>(64);
  std::shared_ptr<MemoryRegion> region =
      pd->register_memory(reinterpret_cast<std::byte*>(buffer.data()), buffer.size(), access::all, false);

  Sge piece() const {
    return {reinterpret_cast<uint64_t>(buffer.data()), static_cast<uint32_t>(buffer.size()), region->lkey()};
  }
  Completion completion() const {
    Completion done;
    while (cq->poll({&done, 1}) == 0) {
      cq->arm(false);
      if (cq->poll({&done, 1}) == 1) return done;
      CHECK(readable(cq->fileno()));
      cq->acknowledge();
    }
    return done;
  }
};

// Waits until the connection is in another state than `from`.
ConnectionState next_state(Connection& connection, ConnectionState from) {
  while (connection.state() == from) {
    CHECK(readable(connection.fileno()));
    connection.acknowledge();
  }
  return connection.state();
}

TEST("an address is host:port, [v6]:port, :port or nothing") {
  CHECK(splits("10.0.0.1:7471", "10.0.0.1", 7471));
  CHECK(splits("[fd00::1]:1", "fd00::1", 1));
  CHECK(splits("node-7.cluster:65535", "node-7.cluster", 65535));
  CHECK(splits(":7471", "", 7471));
  CHECK(splits("", "", 0));
  for (const char* bad :
       {"host", "host:", "host:x", "host:70000", "fd00::1:7471", "[fd00::1", "[]:1", "a:-1", "a:1 "})
    CHECK(!split_address(bad));
}

TEST("a GID has the family of its address") {
  CHECK(family_of(Gid{}) == GidFamily::none);
  CHECK(family_of(ipv4(1)) == GidFamily::ipv4);
  CHECK(family_of(link_local(1)) == GidFamily::link_local);
  CHECK(family_of(global(1)) == GidFamily::global);
}

TEST("the GID towards a peer has its family, RoCE v2 if there is one, and the route's source") {
  const PortAttributes port =
      table({link_local(1), link_local(1), ipv4(1), ipv4(1), Gid{}, ipv4(2), global(1)},
            {"RoCE v1", "RoCE v2", "RoCE v1", "RoCE v2", "", "RoCE v2", "RoCE v1"});
  CHECK(choose_gid(port, link_local(9), {}) == 1);
  CHECK(choose_gid(port, ipv4(9), {}) == 3);
  CHECK(choose_gid(port, ipv4(9), ipv4(2)) == 5);
  CHECK(choose_gid(port, global(9), global(7)) == 6);
  CHECK(!choose_gid(port, Gid{}, {}));
  CHECK(!choose_gid(table({link_local(1)}, {"RoCE v2"}), ipv4(9), {}));
}

TEST("a port prefers RoCE v2 over IPv4 as its public GID") {
  CHECK(public_gid(table({link_local(1), ipv4(1), ipv4(1)}, {"RoCE v2", "RoCE v1", "RoCE v2"})) == 2);
  CHECK(public_gid(table({link_local(1), global(1)}, {"RoCE v2", "RoCE v1"})) == 1);
  CHECK(!public_gid(table({Gid{}}, {""})));
}

TEST("a port or an entry that a device lacks is refused by name, on RoCE") {
  DeviceAttributes device{.name = "rxe0", .transport = "RoCE"};
  device.ports = {table({link_local(1), ipv4(1), {}}, {"RoCE v1", kRoceV2, ""})};
  const auto verdict = [&](const Options& options) {
    try {
      check_options(device, options);
      return std::string("fine");
    } catch (const Error& error) {
      return error.code().str() + ": " + error.what();
    }
  };
  CHECK(verdict({}) == "fine");
  CHECK(verdict({.port = 1, .gid_index = 1}) == "fine");
  CHECK(verdict({.port = 2}).find("rxe0 has no port 2, it has 1") != std::string::npos);
  for (const int absent : {2, 3}) {
    const std::string refusal = verdict({.port = 1, .gid_index = absent});
    CHECK(refusal.starts_with("no_gid"));
    CHECK(refusal.find("it has 0 (RoCE v1), 1 (RoCE v2)") != std::string::npos);
  }
  device.transport = "InfiniBand";
  CHECK(verdict({.gid_index = 3}) == "fine");
}

TEST("a slot ring is as deep as it was made, and a completion frees all before it") {
  SlotRing ring(4);
  for (uint32_t round = 0; round < 10; ++round) {
    CHECK(ring.room() == 4);
    for (uint32_t i = 0; i < 4; ++i) ring.stage(i, {.id = 100 + i, .length = 8, .opcode = WcOpcode::write});
    ring.commit(4);
    CHECK(ring.room() == 0);
    Completion done;
    CHECK(ring.finish(4 * round + 2, done));
    CHECK(done.id == 102 && done.byte_count == 8 && done.opcode == WcOpcode::write);
    CHECK(ring.room() == 3);
    CHECK(ring.finish(4 * round + 3, done) && done.id == 103);
  }
}

TEST("slots of requests that the device refused are released") {
  SlotRing ring(4);
  for (uint32_t i = 0; i < 3; ++i) ring.stage(i, {.id = i});
  ring.commit(3);
  ring.take_back(2);
  CHECK(ring.room() == 3);
  CHECK(ring.stage(0, {.id = 7}) == 1);
}

TEST("a completion from before a reset is reported while its slot exists, and frees nothing") {
  SlotRing ring(2);
  ring.stage(0, {.id = 5});
  ring.commit(1);
  ring.reset();
  CHECK(ring.room() == 2);
  Completion done;
  CHECK(ring.finish(0, done) && done.id == 5);
  CHECK(ring.room() == 2);
  for (uint32_t i = 0; i < 2; ++i) ring.stage(i, {.id = 6});
  ring.commit(2);
  CHECK(!ring.finish(0, done));
  CHECK(ring.room() == 0);
}

TEST("binds take slots of their own, and their completions are not the program's") {
  SlotRing ring(2, 3);
  Completion done;
  CHECK(ring.room() == 2 && ring.has_bind_room());
  uint32_t bind = 0;
  for (int i = 0; i < 3; ++i) {
    CHECK(ring.has_bind_room());
    bind = ring.stage_bind();
    ring.commit(1);
  }
  CHECK(!ring.has_bind_room() && ring.room() == 2);
  for (uint32_t i = 0; i < 2; ++i) ring.stage(i, {.id = 40 + i});
  ring.commit(2);
  CHECK(ring.room() == 0);
  CHECK(!ring.has_finished(bind));
  CHECK(!ring.finish(bind, done));
  CHECK(ring.has_finished(bind) && ring.has_bind_room() && ring.room() == 0);
  CHECK(ring.finish(bind + 2, done) && done.id == 41);
  CHECK(ring.room() == 2);
}

TEST("a bind that failed is reported, one that was flushed is not") {
  SlotRing ring(2, 2);
  const uint32_t failed = ring.stage_bind();
  ring.commit(1);
  const uint32_t flushed = ring.stage_bind();
  ring.commit(1);
  Completion refusal{.status = Status::mw_bind_err};
  CHECK(ring.finish(failed, refusal));
  CHECK(refusal.id == 0 && refusal.opcode == WcOpcode::bind_mw && refusal.status == Status::mw_bind_err);
  Completion flush{.status = Status::wr_flush_err};
  CHECK(!ring.finish(flushed, flush));
  CHECK(ring.failed() && ring.has_finished(flushed));
}

TEST("a bind that the device refused, or that a reset removed, leaves its slot") {
  SlotRing ring(1, 1);
  ring.stage_bind();
  ring.commit(1);
  ring.take_back_bind();
  CHECK(ring.has_bind_room() && ring.room() == 1);
  const uint32_t bind = ring.stage_bind();
  ring.commit(1);
  ring.reset();
  CHECK(ring.has_finished(bind) && ring.has_bind_room() && ring.room() == 1);
}

TEST("what is in flight when the device goes is flushed once, without the binds") {
  SlotRing ring(3, 1);
  for (uint32_t i = 0; i < 2; ++i) ring.stage(i, {.id = 70 + i, .opcode = WcOpcode::write});
  ring.commit(2);
  ring.stage_bind();
  ring.commit(1);
  Completion done;
  CHECK(ring.finish(0, done) && done.id == 70);
  const std::vector<Completion> flushed = ring.flush(9);
  CHECK(flushed.size() == 1 && flushed[0].id == 71 && flushed[0].qp_num == 9);
  CHECK(flushed[0].status == Status::wr_flush_err && flushed[0].opcode == WcOpcode::write);
  CHECK(ring.flush(9).empty());
}

TEST("a device is used by what began before its removal, and by nothing else") {
  struct Part final : Removable {
    explicit Part(DeviceUses& uses) : use(uses, "rxe0", "test") {}
    void on_removal() override {
      if (++asked == 2) use.end();
    }
    DeviceUse use;
    int asked = 0;
  };
  DeviceUses uses;
  std::vector<std::shared_ptr<Part>> parts;
  for (int i = 0; i < 100; ++i) {
    parts.push_back(std::make_shared<Part>(uses));
    uses.track(RemovalRank::region, parts.back());
    if (i % 2) parts.pop_back();
  }
  CHECK(uses.count() == 50);
  uses.refuse();
  std::string refusal;
  try {
    const DeviceUse late(uses, "rxe0", "register memory");
  } catch (const Error& error) {
    refusal = error.code().str() + ": " + error.what();
  }
  CHECK(refusal.starts_with("no_device") && refusal.find("the device rxe0 was removed") != std::string::npos);
  CHECK(uses.count() == 50);
  uses.remove(RemovalRank::queue);
  uses.remove(RemovalRank::region);
  CHECK(uses.count() == 50 && parts[0]->asked == 1);
  uses.remove(RemovalRank::region);
  CHECK(uses.count() == 0);
}

TEST("a shared pool gives slots back in any order") {
  SlotPool pool(2);
  uint32_t first = 0, second = 0, third = 0;
  CHECK(pool.take(10, first) && pool.take(11, second) && !pool.take(12, third));
  Completion done;
  CHECK(pool.finish(second, done) && done.id == 11);
  CHECK(pool.take(12, third) && third == second);
  CHECK(pool.finish(first, done) && done.id == 10);
  CHECK(pool.finish(third, done) && done.id == 12);
  CHECK(!pool.finish(third, done));
}

TEST("an unavailable provider reports why") {
  const auto provider = make_provider();
  CHECK(provider->name() == "ibv");
  if (provider->unavailable_reason().empty()) {
    CHECK(!provider->devices().empty());
    return;
  }
  std::printf("(%s) ", provider->unavailable_reason().c_str());
  bool refused = false;
  try {
    provider->open("");
  } catch (const Error& error) {
    refused = error.code() == "no_device" || error.code() == "provider_missing";
  }
  CHECK(refused);
}

TEST("a device connects, carries a message, and ends the connection at both ends") {
  const auto provider = make_provider();
  if (!provider->unavailable_reason().empty()) return;
  const End caller{provider->open("")}, server{provider->open("")};
  const auto listener = server.context->listen("", 4);
  ConnectParams params;
  params.private_data = {1, 2, 3};
  const auto calling = caller.context->connect(caller.qp, listener->address(), params);
  CHECK(readable(listener->fileno()));
  const auto request = listener->next();
  CHECK(request && request->private_data() == params.private_data);
  const auto accepted = request->accept(server.qp, {});
  CHECK(next_state(*calling, ConnectionState::connecting) == ConnectionState::established);
  CHECK(next_state(*accepted, ConnectionState::connecting) == ConnectionState::established);

  const Sge inbox = server.piece(), outbox = caller.piece();
  std::memcpy(reinterpret_cast<char*>(outbox.addr), "over real verbs", 16);
  const RecvRequest receive{.id = 1, .local = {&inbox, 1}};
  const SendRequest send{.id = 2, .local = {&outbox, 1}};
  CHECK(server.qp->post_recv({&receive, 1}).accepted == 1);
  CHECK(caller.qp->post_send({&send, 1}).accepted == 1);
  const Completion sent = caller.completion(), received = server.completion();
  CHECK(sent.id == 2 && sent.status == Status::success && received.id == 1 && received.byte_count == 64);
  CHECK(std::strcmp(server.buffer.data(), "over real verbs") == 0);

  CHECK(server.qp->post_recv({&receive, 1}).accepted == 1);
  calling->disconnect();
  CHECK(next_state(*accepted, ConnectionState::established) == ConnectionState::disconnected);
  CHECK(server.completion().status == Status::wr_flush_err);
  CHECK(caller.qp->state() == QpState::err && server.qp->state() == QpState::err);
}

TEST("threads may post and poll one queue pair while it is closed under them") {
  const auto provider = make_provider();
  if (!provider->unavailable_reason().empty()) return;
  for (int round = 0; round < 5; ++round) {
    const End end{provider->open("")};
    end.qp->modify({.state = QpState::init,
                    .present = qp_attr::pkey_index | qp_attr::port | qp_attr::access_flags,
                    .access_flags = access::all});
    end.qp->modify({.state = QpState::err});
    const auto work = [&] {
      const Sge piece = end.piece();
      const RecvRequest receive{.id = 1, .local = {&piece, 1}};
      const SendRequest send{.id = 2, .local = {&piece, 1}};
      Completion done[8];
      for (int turn = 0; turn < 200; ++turn) {
        end.qp->post_recv({&receive, 1});
        end.qp->post_send({&send, 1});
        end.cq->poll(done);
      }
    };
    const std::jthread one(work), two(work);
    end.qp->close();
  }
}

}  // namespace

RUN_TESTS()
