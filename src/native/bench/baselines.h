// The raw bounds that figures are set against: a bare message ring and a bare memcpy, on shared mappings.
// No verbs here: this is the least that two processes can do to exchange the same bytes.
// May depend on util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::bench {

// One process' view of a pair of rings (ring_layout.h). Remembers its positions, so loops can be run one
// after another as long as the other side (0 or 1) runs the counterpart for as many messages.
class RingPair {
 public:
  // `memory` is a zeroed shared mapping of at least size_bytes(); throws invalid_argument if it is smaller.
  RingPair(std::span<std::byte> memory, uint32_t payload_bytes, uint32_t slots, int side);
  static uint64_t size_bytes(uint32_t payload_bytes, uint32_t slots);

  // Each sample is the mean round trip of `rounds` rounds. Returns the rounds done: fewer if the peer went
  // silent.
  uint64_t ping(std::span<double> samples_ns, uint32_t rounds, uint64_t patience_ns);
  uint64_t pong(uint64_t rounds, uint64_t patience_ns);

  // One way, at full speed. Returns the messages moved.
  uint64_t produce(uint64_t messages, uint64_t patience_ns);
  uint64_t consume(uint64_t messages, uint64_t patience_ns);

 private:
  bool push(const std::byte* payload, uint64_t patience_ns);
  bool pop(std::byte* payload, uint64_t patience_ns);
  std::byte* slot(std::byte* ring, uint64_t position) const;

  std::byte *out_, *in_;
  uint64_t payload_bytes_, slots_;
  uint64_t produced_ = 0, consumed_ = 0, known_consumed_ = 0;
};

// Copies `source` to `target` (as long) once per sample.
void copy_loop(std::span<std::byte> target, std::span<const std::byte> source, std::span<double> samples_ns);

}  // namespace verbena::bench
