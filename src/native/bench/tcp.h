// Baseline of TCP wires for `verbena bench`: a bare TCP_NODELAY socket with plain system calls, without
// verbs.
// Depends on util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::bench {

// Waits until one of the events of poll(2) occurs; false after `timeout_ns`.
bool wait_for(int socket, short events, uint64_t timeout_ns);

// One end of a connected socket, which the caller owns. The other end runs the counterpart of each loop, for
// as many rounds or messages. All return what was completed: less if the peer did not answer or closed.
class TcpPair {
 public:
  TcpPair(int socket, size_t message_bytes);

  // Both sides spin on recv(2). Each sample is the mean round trip of `rounds` rounds.
  uint64_t ping(std::span<double> samples_ns, uint32_t rounds, uint64_t timeout_ns);
  uint64_t pong(uint64_t rounds, uint64_t timeout_ns);

  // One way, with blocking system calls; the consumer sends one byte when it has everything, and the producer
  // waits for it.
  uint64_t produce(uint64_t messages, uint64_t timeout_ns);
  uint64_t consume(uint64_t messages, uint64_t timeout_ns);

 private:
  enum class Wait : uint8_t { spin, block };
  bool send_all(const std::byte* bytes, size_t size, Wait wait, uint64_t timeout_ns) const;
  bool receive_all(std::byte* bytes, size_t size, Wait wait, uint64_t timeout_ns) const;

  const int socket_;
  std::vector<std::byte> out_, in_;
};

}  // namespace verbena::bench
