// Both ends of a replica's link: what one store does the other has, by WRITE and by messages, while links
// break; and what a primary may say without being believed.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "check.h"
#include "kv/feeder.h"
#include "kv/receiver.h"
#include "session_side.h"
#include "util/crc32c.h"

using namespace verbena::kv;
using sides::join;
using sides::Side;
using verbena::transport::Outcome;

namespace {

const uint32_t kLog = verbena::transport::method::of_name("kv.log");

ChunkMemory heap(size_t bytes) {
  const auto memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), std::free);
  std::memset(memory.get(), 0, bytes);
  return {memory.get(), bytes, memory};
}

class TestClient : public Client {
 public:
  using Client::Client;
  void wake() override {}
};

// An engine, the loop that runs it, and somebody who talks to it.
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
    const std::vector<std::string_view> words(list);
    const auto held = engine->lock();
    engine->run(client, words);
    engine->commit();
    client.out.clear();
    client.waking = false;
  }
  std::string contents() {
    std::vector<std::string> lines;
    const auto held = engine->lock();
    for (uint32_t i = 0; i < engine->keyspace.databases(); ++i) {
      if (!engine->keyspace.exists(i)) continue;
      uint64_t cursor = 0;
      do {
        cursor = engine->keyspace.database(i).scan(cursor, 100, [&](Entry entry) {
          lines.push_back(std::string(entry.key()) + "=" + std::string(entry.value()) + "\n");
        });
      } while (cursor != 0);
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines) text += line;
    return text;
  }

  std::shared_ptr<Engine> engine;
  Loop loop;
  TestClient client;
  std::thread thread;
};

// The replica's end, with a ring that the primary may write.
struct Replica {
  explicit Replica(Side& from, size_t ring_bytes)
      : side(from), memory(side.context->allocate(ring_bytes, false)), applier(*store.engine, nullptr) {
    const std::span<std::byte> ring(memory->data(), ring_bytes);
    receiver = Receiver::make(*store.engine, store.loop, side.node, side.session->id(), ring, applier);
    const auto held = side.node->lock();
    region = side.node->regions().expose(ring.data(), ring.size(), verbena::access::all, side.session->id());
  }
  ~Replica() {
    {
      const auto held = store.engine->lock();
      receiver->close();
    }
    const auto held = side.node->lock();
    side.node->regions().revoke(*region);
  }
  void begin(bool full) {
    const auto held = store.engine->lock();
    receiver->begin(full, 0);
  }

  Side& side;
  Store store;
  std::shared_ptr<verbena::Memory> memory;
  std::shared_ptr<verbena::transport::ExposedRegion> region;
  Applier applier;
  std::shared_ptr<Receiver> receiver;
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
    copy = std::make_unique<BaseCopy>(*primary.engine, primary.engine->tail(), nullptr);
  }
  std::atomic<int> receipts{0};
  const FeederOptions options{
      .ring_key = replica.region->key, .ring_bytes = kRing, .by_write = by_write, .max_inline = max_inline};
  Feeder feeder(primary.engine, ours.node, ours.session, options, std::move(copy), nullptr,
                [&] { ++receipts; });
  for (int i = 0; i < 3000; ++i) {
    primary.run({"APPEND", "key" + std::to_string(i % 37), std::to_string(i) + ","});
    if (i % 700 == 699) join(ours, theirs);
  }
  feeder.set_eager(true);
  const uint64_t offset = primary.engine->tail().visible_offset(), late = verbena::now_ns() + 60'000'000'000;
  while (feeder.figures().offset < offset && !feeder.figures().ended) {
    CHECK(verbena::now_ns() < late);
    std::this_thread::yield();
  }
  const FeederFigures figures = feeder.figures();
  CHECK(!figures.ended && !figures.copying && figures.offset == offset);
  CHECK(figures.acknowledged == figures.sent && receipts > 0);
  CHECK((figures.writes > 0) == by_write);
  const ReceiverFigures taken = replica.receiver->figures();
  CHECK(taken.complete && taken.error.empty() && taken.offset == offset);
  CHECK((taken.written > 0) == by_write);
  CHECK(replica.store.contents() == primary.contents());
}

std::string message(LogPiece piece, const std::string& bytes) {
  return std::string(reinterpret_cast<const char*>(&piece), sizeof piece) + bytes;
}

LogPiece header(uint64_t position, const std::string& bytes, uint32_t flags) {
  return {.position = position,
          .length = static_cast<uint32_t>(bytes.size()),
          .crc = verbena::crc32c(0, bytes.data(), bytes.size()),
          .flags = flags,
          .unused = 0};
}

std::string record(uint64_t lsn, std::string_view key, std::string_view value) {
  std::string out;
  const std::string_view words[] = {"SET", key, value};
  seal_record(out, put_record(out, lsn, 1, 0, 0, words), kStreamSeed);
  return out;
}

LogReceipt receipt_of(const std::string& answer) {
  LogReceipt receipt;
  CHECK(answer.size() == sizeof receipt);
  std::memcpy(&receipt, answer.data(), sizeof receipt);
  return receipt;
}

}  // namespace

TEST("a replica has what its primary has, by WRITE, while links break") { follow_a_primary(true, 0); }
TEST("the same by messages alone") { follow_a_primary(false, 512); }
TEST("the same with short pieces in messages and long ones written") { follow_a_primary(true, 200); }

TEST("pieces that make no sense are refused; damaged and misplaced ones change nothing") {
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, 4096);
  replica.begin(false);
  constexpr uint32_t kAsks = kBytesFollow | kWantsReceipt;
  const std::string one = record(1, "a", "1"), two = record(2, "b", "2");
  primary.call(kLog, "short", Outcome::remote_failure);
  primary.call(kLog, message(header(0, one, 4), one), Outcome::remote_failure);              // unknown flag
  primary.call(kLog, message(header(0, one, kAsks), one + "x"), Outcome::remote_failure);    // another length
  primary.call(kLog, message(header(0, one, kWantsReceipt), one), Outcome::remote_failure);  // bytes inside
  LogPiece beyond = header(4000, one, kWantsReceipt);
  beyond.length = 200;
  primary.call(kLog, message(beyond, ""), Outcome::remote_failure);  // over the ring's end
  LogPiece damaged = header(0, one, kAsks);
  ++damaged.crc;
  CHECK(receipt_of(primary.call(kLog, message(damaged, one))).expected == 0);
  CHECK(receipt_of(primary.call(kLog, message(header(8, one, kAsks), one))).expected == 0);
  CHECK(replica.receiver->figures().damaged == 1 && replica.store.contents().empty());
  CHECK(receipt_of(primary.call(kLog, message(header(0, one, kAsks), one))).expected == one.size());
  // Nobody wants its receipt: it comes with the next that is wanted.
  verbena::transport::Call* patient;
  {
    const auto held = primary.node->lock();
    patient = primary.session->call(kLog, sides::bytes(message(header(one.size(), two, kBytesFollow), two)));
  }
  const uint64_t end = one.size() + two.size();
  const LogReceipt last = receipt_of(primary.call(kLog, message(header(end, "", kAsks), "")));
  CHECK(last.expected == end && last.lsn == 2);
  CHECK(primary.node->wait(*patient, verbena::now_ns() + 20'000'000'000));
  primary.node->end(*patient);
  CHECK(replica.store.contents() == "a=1\nb=2\n");
}

TEST("a stream that is damaged within ends with the reason") {
  Side primary, theirs;
  join(primary, theirs);
  Replica replica(theirs, 4096);
  replica.begin(false);
  std::string wrong = record(1, "a", "1");
  wrong[40] = static_cast<char>(wrong[40] ^ 1);
  const LogPiece piece = header(0, wrong, kBytesFollow | kWantsReceipt);
  const std::string why = primary.call(kLog, message(piece, wrong), Outcome::remote_failure);
  CHECK(why.find("checksum") != why.npos);
  CHECK(!replica.receiver->figures().error.empty() && replica.store.contents().empty());
}

RUN_TESTS()
