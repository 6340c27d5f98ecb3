// Both ends of replication: the replica gets the primary's contents, by WRITE and by messages, while links
// break; and invalid messages of a primary are rejected.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "check.h"
#include "kv/replication/receiver.h"
#include "kv/replication/sender.h"
#include "kv_contents.h"
#include "kv_engine.h"
#include "session_side.h"
#include "util/crc32c/crc32c.h"

using namespace verbena::kv;
using engines::heap;
using engines::QuietClient;
using sides::join;
using sides::Side;
using verbena::transport::Outcome;

namespace {

const uint32_t kLog = verbena::transport::method::of_name("kv.log");

// An engine, the event loop that runs it, and a client.
struct Store {
  Store()
      : engine(std::make_shared<Engine>(2, heap)),
        loop(*engine),
        client(engine->next_client()),
        thread([this] { loop.run(); }) {
    const auto held = engine->lock();
    engine->refresh_time();
    engine->add(client);
  }
  ~Store() {
    loop.stop();
    thread.join();
    const auto held = engine->lock();
    engine->remove(client);
  }
  void run(std::initializer_list<std::string_view> list) {
    const auto held = engine->lock();
    engines::run_quietly(*engine, client, list);
    engine->commit();
  }
  std::string contents() {
    const auto held = engine->lock();
    return engines::contents(*engine);
  }

  std::shared_ptr<Engine> engine;
  EventLoop loop;
  QuietClient client;
  std::thread thread;
};

void revoke(Side& side, const verbena::transport::ExposedRegion& region) {
  verbena::transport::RevokedRegion revoked;
  {
    const auto held = side.node->lock();
    revoked = side.node->revoke(region);
  }
  revoked.finish();
}

// The replica's end, with a ring that the primary may write.
struct Replica {
  explicit Replica(Side& from, size_t ring_bytes)
      : side(from), memory(side.context->allocate(ring_bytes, {})), applier(*store.engine, nullptr) {
    const std::span<std::byte> ring(memory->data(), ring_bytes);
    receiver =
        ReplicationReceiver::make(*store.engine, store.loop, side.node, side.session->id(), ring, applier);
    const auto held = side.node->lock();
    region =
        side.node->regions().expose(ring.data(), ring.size(), verbena::access::all, side.session->audience());
  }
  ~Replica() {
    {
      const auto held = store.engine->lock();
      receiver->close();
    }
    revoke(side, *region);
  }
  void begin(bool full, uint64_t position_key = 0) {
    const auto held = store.engine->lock();
    receiver->begin(full, 0, position_key);
  }

  Side& side;
  Store store;
  std::shared_ptr<verbena::Memory> memory;
  std::shared_ptr<verbena::transport::ExposedRegion> region;
  LogApplier applier;
  std::shared_ptr<ReplicationReceiver> receiver;
};

void follow_a_primary(bool by_write, size_t max_inline) {
  constexpr size_t kRing = 32u << 10;
  Side ours, theirs;
  join(ours, theirs);
  Store primary;
  const std::string value(300, 'v');
  for (int i = 0; i < 300; ++i) primary.run({"SET", "before" + std::to_string(i), value});
  Replica replica(theirs, kRing);
  replica.store.run({"SET", "stale", "gone"});
  replica.begin(true);
  std::unique_ptr<BaseCopy> copy;
  {
    const auto held = primary.engine->lock();
    copy = std::make_unique<BaseCopy>(*primary.engine, primary.engine->backlog(), nullptr);
  }
  std::atomic<int> receipts{0};
  const ReplicationSenderOptions options{.ring_key = replica.region->key,
                                         .ring_tag = replica.receiver->ring_tag(),
                                         .ring_bytes = kRing,
                                         .by_write = by_write,
                                         .max_inline = max_inline};
  ReplicationSender sender(primary.engine, primary.loop, ours.node, ours.session, options, std::move(copy),
                           nullptr, [&] { ++receipts; });
  for (int i = 0; i < 3000; ++i) {
    primary.run({"APPEND", "key" + std::to_string(i % 37), std::to_string(i) + ","});
    if (i % 700 == 699) join(ours, theirs);
  }
  sender.set_eager(true);
  const uint64_t late = verbena::now_ns() + 60'000'000'000;
  const auto caught_up = [&] {
    const ReplicationSenderCounters now = sender.counters();
    return !now.copying && now.acknowledged == now.sent &&
           now.offset == primary.engine->backlog().visible_offset();
  };
  const auto wait = [&] {
    while (!caught_up()) {
      CHECK(!sender.counters().ended && verbena::now_ns() < late);
      std::this_thread::yield();
    }
  };
  wait();
  // From now on each piece comes with a message.
  for (int i = 0; i < 20; ++i) {
    primary.run({"SET", "short", std::to_string(i)});
    wait();
  }
  const uint64_t offset = primary.engine->backlog().visible_offset();
  const ReplicationSenderCounters counters = sender.counters();
  CHECK(!counters.ended && !counters.copying && counters.offset == offset);
  CHECK(counters.acknowledged == counters.sent && receipts > 0);
  CHECK((counters.writes > 0) == by_write);
  CHECK((counters.inlined > 0) == (max_inline > 0));
  const ReplicationReceiverCounters taken = replica.receiver->counters();
  CHECK(taken.complete && taken.error.empty() && taken.offset == offset);
  CHECK((taken.written > 0) == by_write);
  CHECK(replica.store.contents() == primary.contents());
}

// The primary's end, with memory for the replica's position.
struct Primary {
  explicit Primary(Side& from) : side(from), memory(side.context->allocate(sizeof(ReplicaPosition), {})) {
    const auto held = side.node->lock();
    region = side.node->regions().expose(memory->data(), sizeof(ReplicaPosition), verbena::access::all,
                                         side.session->audience());
  }
  ~Primary() {
    sender.reset();
    revoke(side, *region);
  }
  void feed(const Replica& replica, size_t ring_bytes) {
    std::unique_ptr<BacklogReader> reader;
    {
      const auto held = store.engine->lock();
      reader = store.engine->backlog().read_from(1);
    }
    const ReplicationSenderOptions options{.ring_key = replica.region->key,
                                           .ring_tag = replica.receiver->ring_tag(),
                                           .ring_bytes = ring_bytes,
                                           .position = memory->data()};
    sender = std::make_unique<ReplicationSender>(store.engine, store.loop, side.node, side.session, options,
                                                 nullptr, std::move(reader), [] {});
  }
  ReplicaPosition position() const {
    const auto* at = reinterpret_cast<const volatile ReplicaPosition*>(memory->data());
    return {at->expected, at->active};
  }

  Side& side;
  Store store;
  std::shared_ptr<verbena::Memory> memory;
  std::shared_ptr<verbena::transport::ExposedRegion> region;
  std::unique_ptr<ReplicationSender> sender;
};

template <typename Function>
void until(Function is_so) {
  const uint64_t late = verbena::now_ns() + 60'000'000'000;
  while (!is_so()) {
    CHECK(verbena::now_ns() < late);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// A piece as in the ring and in messages.
std::string piece(uint64_t ring_tag, const std::string& bytes) {
  LogPiece header{
      .ring_tag = ring_tag, .visible_ns = 1, .length = static_cast<uint32_t>(bytes.size()), .crc = 0};
  header.crc = piece_crc(header, bytes.data());
  std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  text += bytes;
  text.resize(piece_bytes(bytes.size()));
  return text;
}

std::string message(uint64_t end, uint32_t flags, const std::string& inside = "") {
  const LogMessage header{.end = end, .flags = flags, .unused = 0};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + inside;
}

std::string record(uint64_t lsn, std::string_view key, std::string_view value) {
  std::string out;
  const std::string_view arguments[] = {"SET", key, value};
  seal_record(out, put_record(out, lsn, 1, 0, 0, arguments), kStreamSeed);
  return out;
}

LogReceipt receipt_of(const std::string& answer) {
  LogReceipt receipt;
  CHECK(answer.size() == sizeof receipt);
  std::memcpy(&receipt, answer.data(), sizeof receipt);
  return receipt;
}

}  // namespace

TEST("a replica has its primary's contents: by WRITE, while links break") { follow_a_primary(true, 0); }
TEST("a replica has its primary's contents: by messages alone") { follow_a_primary(false, 512); }
TEST("a replica has its primary's contents: short pieces in messages, long ones by WRITE") {
  follow_a_primary(true, 200);
}

TEST("an active replica publishes its position; an idle one publishes once that it is idle") {
  constexpr size_t kRing = 32u << 10;
  Side ours, theirs;
  join(ours, theirs);
  Primary primary(ours);
  Replica replica(theirs, kRing);
  replica.begin(false, primary.region->key);
  primary.feed(replica, kRing);
  int writes = 0;
  until([&] {
    replica.store.run({"GET", "key"});
    primary.store.run({"SET", "key", std::to_string(++writes)});
    const ReplicaPosition position = primary.position();
    return position.active == 1 && position.expected > 0 &&
           position.expected <= primary.sender->counters().sent;
  });
  until([&] {
    primary.store.run({"SET", "key", std::to_string(++writes)});
    return primary.position().active == 0;
  });
  CHECK(primary.position().expected > 0 && !primary.sender->counters().ended);
}

TEST("a primary yields to an active replica that is late, and not to an idle one") {
  constexpr size_t kRing = 32u << 10;
  Side ours, theirs;
  join(ours, theirs);
  Primary primary(ours);
  Replica replica(theirs, kRing);
  replica.begin(false);
  const ReplicaPosition stuck{.expected = 0, .active = 1};
  std::memcpy(primary.memory->data(), &stuck, sizeof stuck);
  primary.feed(replica, kRing);
  const auto yielded_ns = [&] { return primary.sender->counters().yielded_ns; };
  int writes = 0;
  until([&] {
    primary.store.run({"SET", "key", std::to_string(++writes)});
    primary.store.loop.wake();
    return yielded_ns() > 0;
  });
  for (const ReplicaPosition position :
       {ReplicaPosition{.expected = UINT64_MAX, .active = 1}, ReplicaPosition{}}) {
    {
      const auto held = primary.store.engine->lock();  // the event loop does not poll meanwhile
      auto* at = reinterpret_cast<ReplicaPosition*>(primary.memory->data());
      __atomic_store_n(&at->expected, position.expected, __ATOMIC_RELAXED);
      __atomic_store_n(&at->active, position.active, __ATOMIC_RELAXED);
    }
    std::atomic<bool> has_turned = false;
    primary.store.loop.post([&] { has_turned = true; });
    until([&] { return has_turned.load(); });
    const uint64_t before = yielded_ns();
    for (int i = 0; i < 100; ++i) {
      primary.store.run({"SET", "key", std::to_string(++writes)});
      primary.store.loop.wake();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    CHECK(yielded_ns() == before);
  }
  CHECK(!primary.sender->counters().ended);
  until([&] { return replica.store.contents() == "0 key = " + std::to_string(writes) + " until 0\n"; });
}

TEST("invalid messages are refused; damaged and misplaced pieces change nothing") {
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, 4096);
  replica.begin(false);
  constexpr uint32_t kAsks = kPieceFollows | kWantsReceipt;
  const uint64_t ring_tag = replica.receiver->ring_tag();
  const std::string one = piece(ring_tag, record(1, "a", "1"));
  const uint64_t size = one.size();
  const std::string two = piece(ring_tag + size, record(2, "b", "2"));
  primary.call(kLog, "short", Outcome::remote_failure);
  primary.call(kLog, message(size, kPieceFollows | 4, one), Outcome::remote_failure);  // unknown flag
  primary.call(kLog, message(size, kAsks, one + "x"), Outcome::remote_failure);        // wrong length
  primary.call(kLog, message(size, kAsks, one.substr(0, 8)), Outcome::remote_failure);
  primary.call(kLog, message(size, kWantsReceipt, one), Outcome::remote_failure);  // not a piece
  std::string damaged = one;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  CHECK(receipt_of(primary.call(kLog, message(size, kAsks, damaged))).expected == 0);
  CHECK(receipt_of(primary.call(kLog, message(2 * size, kAsks, two))).expected == 0);           // too early
  CHECK(receipt_of(primary.call(kLog, message(0, kAsks, piece(ring_tag, "")))).expected == 0);  // empty
  CHECK(receipt_of(primary.call(kLog, message(size, kWantsReceipt))).expected == 0);            // not written
  CHECK(replica.receiver->counters().damaged == 3 && replica.store.contents().empty());
  CHECK(receipt_of(primary.call(kLog, message(size, kAsks, one))).expected == size);
  CHECK(receipt_of(primary.call(kLog, message(size, kAsks, one))).expected == size);  // repeated
  // It requests no receipt: the reply comes with the next one that is requested.
  verbena::transport::Operation* patient;
  {
    const auto held = primary.node->lock();
    patient = primary.session->call(kLog, sides::bytes(message(2 * size, kPieceFollows, two)));
  }
  const LogReceipt last = receipt_of(primary.call(kLog, message(2 * size, kWantsReceipt)));
  CHECK(last.expected == 2 * size && last.lsn == 2);
  CHECK(primary.node->wait(*patient, verbena::now_ns() + 20'000'000'000));
  primary.node->end(*patient);
  CHECK(replica.store.contents() == "0 a = 1 until 0\n0 b = 2 until 0\n");
}

TEST("a piece in the ring is applied only if it is complete, in its place, and has the secret") {
  constexpr size_t kRing = 256;
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, kRing);
  replica.begin(false);
  const uint64_t ring_tag = replica.receiver->ring_tag();
  const auto put = [&](uint64_t position, const std::string& bytes) {
    const auto held = replica.store.engine->lock();  // the event loop does not poll meanwhile
    std::memcpy(replica.memory->data() + position % kRing, bytes.data(), bytes.size());
  };
  const auto taken = [&](uint64_t end) {
    return receipt_of(primary.call(kLog, message(end, kWantsReceipt))).expected;
  };
  const std::string one = piece(ring_tag, record(1, "a", "1"));
  const uint64_t size = one.size();
  put(0, piece(ring_tag + 1, record(1, "a", "0")));
  CHECK(taken(size) == 0);
  std::string half = one;
  half.back() = 0, half[size - 8] = static_cast<char>(half[size - 8] ^ 1);
  put(0, half);
  CHECK(taken(size) == 0);
  // A piece whose length crosses the ring's end.
  LogPiece longer{.ring_tag = ring_tag, .visible_ns = 0, .length = kRing, .crc = 0};
  put(0, std::string(reinterpret_cast<const char*>(&longer), sizeof longer));
  CHECK(taken(size) == 0 && replica.store.contents().empty());
  put(0, one);
  CHECK(taken(size) == size);
  // Once around the ring; the unused bytes at its end are skipped.
  uint64_t position = size, lsn = 1;
  for (int i = 0; i < 50; ++i) {
    position = next_piece(position, kRing);
    const size_t left = kRing - position % kRing;
    std::string bytes = record(++lsn, "k", std::to_string(i));
    std::string rest;
    if (piece_bytes(bytes.size()) > left) rest = bytes.substr(left - sizeof(LogPiece));
    bytes.resize(bytes.size() - rest.size());
    for (const std::string& some : {bytes, rest}) {
      if (some.empty()) continue;
      position = next_piece(position, kRing);
      const std::string whole = piece(ring_tag + position, some);
      put(position, whole);
      position += whole.size();
      CHECK(taken(position) == position);
    }
  }
  CHECK(replica.store.contents() == "0 a = 1 until 0\n0 k = 49 until 0\n");
  CHECK(replica.receiver->counters().written > 50 * 40);
}

// Not instrumented by TSan: the race with the replica's read is what the test is about.
__attribute__((no_sanitize("thread"))) void overwrite(std::byte* to, const std::string& bytes) {
  auto* at = reinterpret_cast<volatile char*>(to);
  for (size_t i = 0; i < bytes.size(); ++i) at[i] = bytes[i];
}

TEST("a primary that changes a piece while it is applied gets one version of it applied") {
  constexpr size_t kValue = 150'000;
  const size_t ring = piece(0, record(1, "key", std::string(kValue, 'a'))).size();  // for one piece
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, ring);
  replica.begin(false);
  for (uint64_t lsn = 1; lsn <= 25; ++lsn) {
    const uint64_t end = lsn * ring, ring_tag = replica.receiver->ring_tag() + end - ring;
    const std::string versions[] = {piece(ring_tag, record(lsn, "key", std::string(kValue, 'a'))),
                                    piece(ring_tag, record(lsn, "key", std::string(kValue, 'b')))};
    std::byte* const place = replica.memory->data();
    std::jthread writer([&](const std::stop_token& stop) {
      for (size_t i = 0; !stop.stop_requested(); ++i) {
        overwrite(place, versions[i % 2]);
        std::this_thread::sleep_for(std::chrono::microseconds(i % 7 * 20));
      }
    });
    while (receipt_of(primary.call(kLog, message(end, kWantsReceipt))).expected != end) {
    }
    writer.request_stop();
    writer.join();
    const std::string contents = replica.store.contents();
    CHECK(contents.find(std::string(kValue, 'a')) != contents.npos ||
          contents.find(std::string(kValue, 'b')) != contents.npos);
  }
  CHECK(replica.receiver->counters().error.empty());
}

TEST("a stream with a damaged record ends with the reason") {
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, 4096);
  replica.begin(false);
  std::string wrong = record(1, "a", "1");
  wrong[40] = static_cast<char>(wrong[40] ^ 1);
  const std::string whole = piece(replica.receiver->ring_tag(), wrong);
  const std::string why = primary.call(kLog, message(whole.size(), kPieceFollows | kWantsReceipt, whole),
                                       Outcome::remote_failure);
  CHECK(why.find("checksum") != why.npos);
  CHECK(!replica.receiver->counters().error.empty() && replica.store.contents().empty());
}

RUN_TESTS()
