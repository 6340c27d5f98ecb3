// Measuring loops over the provider contract, as a C++ application would write them. They post, poll and spin
// (or sleep) on the caller's thread, and stop when a wait exceeds `timeout_ns`.
// Depends on verbs/ and util/ only.
#pragma once

#include <cstdint>
#include <span>

#include "verbs/provider.h"

namespace verbena::bench {

constexpr uint64_t kTimeoutNs = 10'000'000'000;

// One end of a connection. Both queues of the QP report to `cq`, which no other thread polls meanwhile.
struct Endpoint {
  QueuePair& qp;
  CompletionQueue& cq;
  uint64_t timeout_ns = kTimeoutNs;
  bool sleeps = false;  // waits on the completion queue's descriptor instead of spinning
};

// How a loop ended. If not finished(), the connection must not be used for another loop.
struct LoopResult {
  uint64_t done = 0;  // completed rounds or operations
  uint64_t elapsed_ns = 0;
  Status status = Status::success;         // of the completion that failed
  PostError post_error = PostError::none;  // of the post that was refused
  bool timed_out = false;
  bool corrupted = false;  // a message arrived with wrong bytes

  bool finished() const {
    return status == Status::success && post_error == PostError::none && !timed_out && !corrupted;
  }
};

// The memory for messages: slot 0 is sent from, slots 1..receives are received into.
struct Mailbox {
  uint64_t addr = 0;
  uint32_t lkey = 0;
  uint32_t message_bytes = 64;
  uint32_t receives = 32;

  static constexpr uint64_t kAlignment = 64;
  uint64_t slot_bytes() const { return (message_bytes + kAlignment - 1) / kAlignment * kAlignment; }
  uint64_t size_bytes() const { return slot_bytes() * (receives + 1); }
};

// Posts all receives of the mailbox, once, before the peer may send. The loops keep them posted.
LoopResult post_receives(const Endpoint& end, const Mailbox& box);

// SEND ping-pong, both sides spinning. Each sample is the mean round trip of `rounds` rounds in nanoseconds.
// The peer must run pong() for samples.size() * rounds rounds. Every message carries its number, which is
// checked.
LoopResult ping(const Endpoint& end, const Mailbox& box, std::span<double> samples_ns, uint32_t rounds);
LoopResult pong(const Endpoint& end, const Mailbox& box, uint64_t rounds);

// A one-sided operation: `opcode` is read, write, compare_swap or fetch_add (atomics need 8 bytes).
struct OneSided {
  Opcode opcode = Opcode::read;
  Sge local;
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
};

// Posts one operation at a time and spins until it completes; each sample is the mean of `rounds` operations.
LoopResult one_sided_latency(const Endpoint& end, const OneSided& work, std::span<double> samples_ns,
                             uint32_t rounds);

// Keeps up to `depth` operations in flight, posted in batches whose last request is signalled.
LoopResult one_sided_rate(const Endpoint& end, const OneSided& work, uint64_t operations, uint32_t depth);

// One-way SENDs at full speed; the peer runs receive_rate() for as many messages.
LoopResult send_rate(const Endpoint& end, const Mailbox& box, uint64_t messages, uint32_t depth);
LoopResult receive_rate(const Endpoint& end, const Mailbox& box, uint64_t messages);

}  // namespace verbena::bench
