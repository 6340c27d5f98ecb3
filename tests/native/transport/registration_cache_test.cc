// Registrations that are kept: found by exactly the same memory, bounded, and given up when the wire has no
// room; long memory in several pieces.
#include <set>
#include <vector>

#include "check.h"
#include "providers/registry.h"
#include "transport/node/node.h"
#include "util/error.h"

using namespace verbena;
using namespace verbena::transport;

namespace {

// Counts regions, and takes no more than `most` at once.
struct CountingDomain final : ProtectionDomain {
  struct Region final : MemoryRegion {
    Region(CountingDomain& owner, size_t bytes, uint32_t number)
        : domain(owner), length(bytes), key(number) {}
    uint32_t lkey() const override { return key; }
    uint32_t rkey() const override { return key; }
    void close() override { domain.open.erase(key); }
    CountingDomain& domain;
    const size_t length;
    const uint32_t key;
  };

  std::shared_ptr<MemoryRegion> register_memory(std::byte*, size_t length, uint32_t, bool) override {
    if (open.size() >= most) throw Error("memlock", "register memory", "no more");
    open.insert(++made);
    lengths.push_back(length);
    return std::make_shared<Region>(*this, length, made);
  }
  std::shared_ptr<MemoryWindow> bind_window(const std::shared_ptr<MemoryRegion>&, uint32_t,
                                            const std::shared_ptr<QueuePair>&, const MemoryGroup*) override {
    return nullptr;
  }
  std::shared_ptr<QueuePair> create_qp(const QpOptions&) override { return nullptr; }
  std::shared_ptr<SharedReceiveQueue> create_srq(uint32_t, uint32_t) override { return nullptr; }
  void close() override {}

  size_t most = SIZE_MAX;
  uint32_t made = 0;
  std::set<uint32_t> open;
  std::vector<size_t> lengths;
};

struct Wire {
  std::shared_ptr<CountingDomain> pd = std::make_shared<CountingDomain>();
  std::shared_ptr<Port> port = [this] {
    const auto context = find_provider("fake")->open("");
    return std::make_shared<Port>(context, pd, context->create_cq(8), context->alloc_pd()->create_srq(8, 1),
                                  PortOptions{.name = "stub", .buffer_bytes = 64, .pool_buffers = 1});
  }();
  const uint32_t own = pd->made;  // the buffers of the port
  const size_t own_open = pd->open.size();
};

struct Owner final : MemoryOwner {
  explicit Owner(const bool& is_dropped) : dropped(is_dropped) {}
  bool is_last_reference() const override { return dropped; }
  const bool& dropped;
};

const bool kInUse = false;

CachedRegistration entry(std::byte* data, size_t length, const bool& dropped = kInUse) {
  return {std::make_unique<Owner>(dropped),
          std::make_unique<Registration>(data, length, access::local_write)};
}

}  // namespace

TEST("the same memory is registered once, other memory by itself") {
  Wire wire;
  std::vector<std::byte> memory(300);
  RegistrationCache cache(1000);
  for (int i = 0; i < 3; ++i) {
    CachedRegistration kept = cache.take(memory.data(), 100, access::local_write);
    if (!kept.memory) kept = entry(memory.data(), 100);
    kept.memory->lkey(*wire.port, memory.data());
    CHECK(cache.keep(std::move(kept)).empty());
  }
  CHECK(wire.pd->made == wire.own + 1);
  CHECK(cache.hits() == 2 && cache.misses() == 1 && cache.bytes() == 100 && cache.entries() == 1);
  CHECK(!cache.take(memory.data() + 1, 100, access::local_write).memory);
  CHECK(!cache.take(memory.data(), 99, access::local_write).memory);
  CHECK(!cache.take(memory.data(), 100, 0).memory);
  CHECK(cache.clear().size() == 1);
  CHECK(wire.pd->open.size() == wire.own_open);
}

TEST("the least recently used registration is closed when the cache is full") {
  Wire wire;
  std::vector<std::byte> memory(400);
  RegistrationCache cache(250);
  for (size_t i = 0; i < 3; ++i) {
    CachedRegistration fresh = entry(memory.data() + i * 100, 100);
    fresh.memory->on(*wire.port);
    const auto dropped = cache.keep(std::move(fresh));
    CHECK(dropped.size() == (i == 2 ? 1 : 0));
  }
  CHECK(cache.evictions() == 1 && cache.bytes() == 200);
  CHECK(wire.pd->open.size() == wire.own_open + 2);
  CHECK(!cache.take(memory.data(), 100, access::local_write).memory);
  CHECK(cache.keep(entry(memory.data(), 300)).size() == 1);  // longer than all of it: not kept
  CHECK(cache.entries() == 2);
  CHECK(cache.clear().size() == 2);
}

TEST("registrations of memory that the program has freed are closed") {
  Wire wire;
  std::vector<std::byte> memory(200);
  RegistrationCache cache(1000);
  bool dropped = false;
  CHECK(cache.keep(entry(memory.data(), 100, dropped)).empty());
  CHECK(cache.keep(entry(memory.data() + 100, 100)).empty());
  CHECK(cache.sweep().empty());
  dropped = true;
  CHECK(cache.sweep().size() == 1);
  CHECK(cache.bytes() == 100 && cache.evictions() == 0);
  CHECK(cache.clear().size() == 1);
}

TEST("two transfers of one buffer at a time do not share a registration") {
  std::vector<std::byte> memory(100);
  RegistrationCache cache(1000);
  CHECK(cache.keep(entry(memory.data(), 100)).empty());
  CachedRegistration first = cache.take(memory.data(), 100, access::local_write);
  CHECK(first.memory);
  CHECK(!cache.take(memory.data(), 100, access::local_write).memory);
  CHECK(cache.keep(std::move(first)).empty());
  CHECK(cache.keep(entry(memory.data(), 100)).size() == 1);  // the second's own
  CHECK(cache.entries() == 1 && cache.bytes() == 100);
  CHECK(cache.clear().size() == 1);
}

TEST("a wire at its registration limit evicts unused registrations") {
  Wire wire;
  std::vector<std::byte> memory(200);
  Node node({});
  const auto held = node.lock();
  CachedRegistration kept = entry(memory.data(), 100);
  kept.memory->on(*wire.port);
  wire.pd->most = wire.pd->open.size();
  CHECK(node.registrations().keep(std::move(kept)).empty());
  Registration other(memory.data() + 100, 100, 0);
  CHECK(node.registering([&] { return other.lkey(*wire.port, other.data()); }) == wire.pd->made);
  CHECK(node.registrations().entries() == 0 && node.registrations().evictions() == 1);
  Registration third(memory.data(), 10, 0);
  bool refused = false;
  try {
    node.registering([&] { third.on(*wire.port); });
  } catch (const Error& error) {
    refused = error.code() == "memlock";
  }
  CHECK(refused);
}

TEST("long memory is registered in pieces, as they are needed") {
  Wire wire;
  std::vector<std::byte> memory(250);
  Registration pieces(memory.data(), memory.size(), 0, 100);
  CHECK(pieces.in_piece(0) == 100 && pieces.in_piece(30) == 70 && pieces.in_piece(200) == 50);
  const uint32_t first = pieces.lkey(*wire.port, memory.data() + 99);
  CHECK(wire.pd->made == wire.own + 1);
  CHECK(pieces.lkey(*wire.port, memory.data()) == first);
  CHECK(pieces.lkey(*wire.port, memory.data() + 249) != first);
  CHECK(wire.pd->made == wire.own + 2);
  CHECK(wire.pd->lengths.back() == 50);
}

RUN_TESTS()
