// The shared-memory ring on its own: wrap-around, full, empty, largest fragment, hostile contents, two
// threads.
#include "providers/shm/ring.h"

#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"

using namespace verbena::shm;

namespace {

struct Segment {
  Segment()
      : memory(static_cast<RingSegment*>(
            mmap(nullptr, sizeof(RingSegment), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Segment() { munmap(memory, sizeof(RingSegment)); }
  RingSegment* memory;
};

std::byte pattern(uint64_t message, uint32_t at) { return static_cast<std::byte>(message * 31 + at); }

bool send(RingProducer& producer, uint64_t message, uint32_t length) {
  Slot* slot = producer.try_claim();
  if (!slot) return false;
  SlotHeader header{};
  header.length = length;
  header.kind = SlotKind::send;
  std::byte* payload = slot->bytes;
  if (length <= kInSlotBytes) {
    header.flags = slot_flag::in_slot;
  } else if (payload = producer.try_claim_payload(length, &header.payload_at); !payload) {
    return false;
  }
  for (uint32_t i = 0; i < length; ++i) payload[i] = pattern(message, i);
  slot->header = header;
  producer.publish(slot);
  return true;
}

bool receive(RingConsumer& consumer, uint64_t message, uint32_t length) {
  Slot* slot = consumer.peek();
  if (!slot) return false;
  const SlotHeader header = slot->header;
  CHECK(header.length == length);
  const std::byte* payload = consumer.payload(slot, header);
  CHECK(payload != nullptr);
  for (uint32_t i = 0; i < length; ++i) CHECK(payload[i] == pattern(message, i));
  consumer.release();
  consumer.publish_consumed();
  return true;
}

void acknowledge(RingProducer& producer) {
  const uint64_t before = producer.acknowledged();
  CHECK(producer.acknowledge(producer.header().consumed.load(std::memory_order_acquire)));
  for (uint64_t i = before; i < producer.acknowledged(); ++i) producer.release_payload(i);
}

uint32_t length_of(uint64_t message) {
  constexpr uint32_t kLengths[] = {0, 1, kInSlotBytes, kInSlotBytes + 1, 4096, kFragmentBytes, 64, 777};
  return kLengths[message % std::size(kLengths)];
}

}  // namespace

TEST("an empty ring has nothing to take") {
  Segment segment;
  RingConsumer consumer(segment.memory);
  CHECK(consumer.peek() == nullptr);
}

TEST("a full ring refuses a claim until something is acknowledged") {
  Segment segment;
  RingProducer producer(segment.memory);
  RingConsumer consumer(segment.memory);
  for (uint64_t i = 0; i < kSlotCount; ++i) CHECK(send(producer, i, 8));
  CHECK(producer.try_claim() == nullptr);
  CHECK(receive(consumer, 0, 8));
  CHECK(producer.try_claim() == nullptr);
  acknowledge(producer);
  CHECK(producer.try_claim() != nullptr);
}

TEST("payload space is bounded and comes back with the acknowledgement") {
  Segment segment;
  RingProducer producer(segment.memory);
  RingConsumer consumer(segment.memory);
  uint64_t sent = 0;
  while (send(producer, sent, kFragmentBytes)) ++sent;
  CHECK(sent == kPayloadBytes / kFragmentBytes);
  CHECK(receive(consumer, 0, kFragmentBytes));
  acknowledge(producer);
  CHECK(send(producer, sent, kFragmentBytes));
  CHECK(!send(producer, sent + 1, kFragmentBytes));
}

TEST("messages of every length survive many laps of slots and payload") {
  Segment segment;
  RingProducer producer(segment.memory);
  RingConsumer consumer(segment.memory);
  uint64_t sent = 0, taken = 0;
  constexpr uint64_t kMessages = 5000;
  while (taken < kMessages) {
    while (sent < kMessages && send(producer, sent, length_of(sent))) ++sent;
    const uint64_t before = taken;
    // Leave some slots, so that producer and consumer meet at all offsets.
    while (taken < sent && taken - before < 7) {
      CHECK(receive(consumer, taken, length_of(taken)));
      ++taken;
    }
    acknowledge(producer);
  }
  CHECK(consumer.peek() == nullptr);
  CHECK(producer.outstanding() == 0);
}

TEST("an acknowledgement of what was never sent is refused, an old one is ignored") {
  Segment segment;
  RingProducer producer(segment.memory);
  CHECK(send(producer, 0, 8) && send(producer, 1, 8));
  CHECK(!producer.acknowledge(3));
  CHECK(!producer.acknowledge(UINT64_MAX));
  CHECK(producer.acknowledge(2));
  CHECK(producer.acknowledge(1));
  CHECK(producer.acknowledged() == 2);
}

TEST("a slot whose payload would lie outside is refused") {
  Segment segment;
  RingConsumer consumer(segment.memory);
  Slot& slot = segment.memory->slots[0];
  SlotHeader header{};
  header.flags = slot_flag::in_slot;
  header.length = kInSlotBytes + 1;
  CHECK(consumer.payload(&slot, header) == nullptr);
  header.flags = 0;
  header.length = kFragmentBytes + 1;
  CHECK(consumer.payload(&slot, header) == nullptr);
  header.length = 64;
  header.payload_at = kPayloadBytes - 63;
  CHECK(consumer.payload(&slot, header) == nullptr);
  header.payload_at = UINT64_MAX;
  CHECK(consumer.payload(&slot, header) == nullptr);
  header.payload_at = kPayloadBytes - 64;
  CHECK(consumer.payload(&slot, header) != nullptr);
}

TEST("a stale or garbage sequence is not a message") {
  Segment segment;
  RingConsumer consumer(segment.memory);
  for (const uint64_t garbage : {uint64_t{2}, uint64_t{kSlotCount + 1}, UINT64_MAX}) {
    segment.memory->slots[0].sequence.store(garbage);
    CHECK(consumer.peek() == nullptr);
  }
}

TEST("two threads pass every message once, in order") {
  Segment segment;
  constexpr uint64_t kMessages = 20000;
  std::thread sender([&] {
    RingProducer producer(segment.memory);
    for (uint64_t i = 0; i < kMessages;) {
      if (send(producer, i, length_of(i) % 512)) {
        ++i;
      } else {
        acknowledge(producer);
        std::this_thread::yield();
      }
    }
  });
  RingConsumer consumer(segment.memory);
  for (uint64_t i = 0; i < kMessages;) {
    if (receive(consumer, i, length_of(i) % 512)) {
      ++i;
    } else {
      std::this_thread::yield();
    }
  }
  sender.join();
  CHECK(consumer.peek() == nullptr);
}

RUN_TESTS()
