// Baselines on shared mappings for `verbena bench`: a bare message ring and a bare memcpy. They use no verbs:
// this is the least work by which two processes can exchange the same bytes.
// Depends on util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::bench {

// One process's view of a pair of rings (ring_layout.h). Loops can run one after another, as long as the
// other side (0 or 1) runs the counterpart for as many messages.
class RingPair {
 public:
  // `memory` is a zeroed shared mapping of at least size_bytes(); throws invalid_argument if it is smaller.
  RingPair(std::span<std::byte> memory, uint32_t payload_bytes, uint32_t slots, int side);
  static uint64_t size_bytes(uint32_t payload_bytes, uint32_t slots);

  // Each sample is the mean round trip of `rounds` rounds. Returns the completed rounds: fewer if the peer
  // did not answer within `timeout_ns`.
  uint64_t ping(std::span<double> samples_ns, uint32_t rounds, uint64_t timeout_ns);
  uint64_t pong(uint64_t rounds, uint64_t timeout_ns);

  // Sends or receives messages in one direction, at full speed. Returns their number.
  uint64_t produce(uint64_t messages, uint64_t timeout_ns);
  uint64_t consume(uint64_t messages, uint64_t timeout_ns);

 private:
  bool push(const std::byte* payload, uint64_t timeout_ns);
  bool pop(std::byte* payload, uint64_t timeout_ns);
  std::byte* slot(std::byte* ring, uint64_t position) const;

  std::byte *out_, *in_;
  uint64_t payload_bytes_, slots_;
  uint64_t produced_ = 0, consumed_ = 0, known_consumed_ = 0;
};

// Copies `source` to `target`, which has the same length, once per sample.
void copy_loop(std::span<std::byte> target, std::span<const std::byte> source, std::span<double> samples_ns);

}  // namespace verbena::bench
