#include "bench/baselines.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/ring_layout.h"
#include "bench/timer.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/spinlock.h"

namespace verbena::bench {
namespace {

RingHeader& header(std::byte* ring) { return *reinterpret_cast<RingHeader*>(ring); }
SlotHeader& slot_header(std::byte* slot) { return *reinterpret_cast<SlotHeader*>(slot); }

// Spins until `ready()`; false if that takes longer than `timeout_ns`.
template <typename Ready>
bool spin(Ready&& ready, uint64_t timeout_ns) {
  uint64_t deadline_ns = 0;
  for (uint32_t spins = 1; !ready(); ++spins) {
    cpu_relax();
    if (spins % kSpinsPerClock != 0) continue;
    const uint64_t now = now_ns();
    if (deadline_ns == 0) deadline_ns = now + timeout_ns;
    if (now > deadline_ns) return false;
  }
  return true;
}

}  // namespace

uint64_t RingPair::size_bytes(uint32_t payload_bytes, uint32_t slots) {
  return 2 * ring_bytes(payload_bytes, slots);
}

RingPair::RingPair(std::span<std::byte> memory, uint32_t payload_bytes, uint32_t slots, int side)
    : payload_bytes_(payload_bytes), slots_(slots) {
  if (slots == 0 || memory.size() < size_bytes(payload_bytes, slots)) {
    throw Error("invalid_argument", "open ring", "the mapping is too small for two rings");
  }
  std::byte* const rings[] = {memory.data(), memory.data() + ring_bytes(payload_bytes, slots)};
  out_ = rings[side == 0 ? 0 : 1];
  in_ = rings[side == 0 ? 1 : 0];
}

std::byte* RingPair::slot(std::byte* ring, uint64_t position) const {
  return ring + sizeof(RingHeader) + position % slots_ * ring_slot_bytes(payload_bytes_);
}

bool RingPair::push(const std::byte* payload, uint64_t timeout_ns) {
  if (produced_ - known_consumed_ == slots_) {
    // Acquire: the consumer has copied the payload out of the slot before it stored `consumed`.
    auto room = [this] {
      known_consumed_ = header(out_).consumed.load(std::memory_order_acquire);
      return produced_ - known_consumed_ < slots_;
    };
    if (!spin(room, timeout_ns)) return false;
  }
  std::byte* const place = slot(out_, produced_);
  std::memcpy(place + sizeof(SlotHeader), payload, payload_bytes_);
  slot_header(place).sequence.store(++produced_,
                                    std::memory_order_release);  // release: publishes the payload
  return true;
}

bool RingPair::pop(std::byte* payload, uint64_t timeout_ns) {
  std::byte* const place = slot(in_, consumed_);
  const uint64_t wanted = consumed_ + 1;
  auto published = [&] { return slot_header(place).sequence.load(std::memory_order_acquire) == wanted; };
  if (!spin(published, timeout_ns)) return false;
  std::memcpy(payload, place + sizeof(SlotHeader), payload_bytes_);
  ++consumed_;
  // Stored only a few times per round of the ring: the producer needs it only when it runs out of slots, and
  // each store costs the producer a cache miss.
  if (slots_ < 4 || consumed_ % (slots_ / 4) == 0) {
    header(in_).consumed.store(consumed_, std::memory_order_release);
  }
  return true;
}

uint64_t RingPair::ping(std::span<double> samples_ns, uint32_t rounds, uint64_t timeout_ns) {
  const Timer& timer = Timer::instance();
  std::vector<std::byte> sent(payload_bytes_), received(payload_bytes_);
  uint64_t number = 0;
  uint64_t start = timer.ticks();
  for (double& sample : samples_ns) {
    for (uint32_t round = 0; round < rounds; ++round, ++number) {
      std::memcpy(sent.data(), &number, std::min<size_t>(sizeof(number), sent.size()));
      if (!push(sent.data(), timeout_ns) || !pop(received.data(), timeout_ns)) return number;
      if (std::memcmp(sent.data(), received.data(), std::min<size_t>(sizeof(number), sent.size())) != 0)
        return number;
    }
    const uint64_t end = timer.ticks();
    sample = timer.per_round_ns(start, end, rounds);
    start = end;
  }
  return number;
}

uint64_t RingPair::pong(uint64_t rounds, uint64_t timeout_ns) {
  std::vector<std::byte> message(payload_bytes_);
  for (uint64_t number = 0; number < rounds; ++number) {
    if (!pop(message.data(), timeout_ns) || !push(message.data(), timeout_ns)) return number;
  }
  return rounds;
}

uint64_t RingPair::produce(uint64_t messages, uint64_t timeout_ns) {
  std::vector<std::byte> message(payload_bytes_);
  for (uint64_t number = 0; number < messages; ++number) {
    if (!push(message.data(), timeout_ns)) return number;
  }
  return messages;
}

uint64_t RingPair::consume(uint64_t messages, uint64_t timeout_ns) {
  std::vector<std::byte> message(payload_bytes_);
  for (uint64_t number = 0; number < messages; ++number) {
    if (!pop(message.data(), timeout_ns)) return number;
  }
  return messages;
}

void copy_loop(std::span<std::byte> target, std::span<const std::byte> source, std::span<double> samples_ns) {
  const Timer& timer = Timer::instance();
  uint64_t start = timer.ticks();
  for (double& sample : samples_ns) {
    std::memcpy(target.data(), source.data(), source.size());
    asm volatile("" ::: "memory");  // keeps the compiler from dropping a copy that the next one overwrites
    const uint64_t end = timer.ticks();
    sample = timer.per_round_ns(start, end, 1);
    start = end;
  }
}

}  // namespace verbena::bench
