#include "bench/tcp.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/timer.h"
#include "util/clock.h"

namespace verbena::bench {
namespace {

constexpr uint32_t kTriesPerClock = 1024;

// Runs `call` (a non-blocking system call on part of the remaining bytes) until `size` bytes are transferred.
template <typename Call>
bool move_all(size_t size, uint64_t timeout_ns, Call call) {
  uint64_t deadline_ns = 0;
  uint32_t tries = 0;
  for (size_t done = 0; done < size;) {
    const ssize_t n = call(done);
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (++tries % kTriesPerClock != 0) continue;
    const uint64_t now = now_ns();
    if (deadline_ns == 0) deadline_ns = now + timeout_ns;
    if (now > deadline_ns) return false;
  }
  return true;
}

}  // namespace

bool wait_for(int socket, short events, uint64_t timeout_ns) {
  pollfd ready{socket, events, 0};
  return ::poll(&ready, 1, static_cast<int>(std::min<uint64_t>(timeout_ns / 1'000'000, INT32_MAX))) > 0;
}

TcpPair::TcpPair(int socket, size_t message_bytes)
    : socket_(socket), out_(std::max<size_t>(message_bytes, 1)), in_(out_.size()) {}

bool TcpPair::send_all(const std::byte* bytes, size_t size, Wait wait, uint64_t timeout_ns) const {
  const int flags = MSG_NOSIGNAL | (wait == Wait::spin ? MSG_DONTWAIT : 0);
  return move_all(size, timeout_ns,
                  [&](size_t done) { return ::send(socket_, bytes + done, size - done, flags); });
}

bool TcpPair::receive_all(std::byte* bytes, size_t size, Wait wait, uint64_t timeout_ns) const {
  const int flags = wait == Wait::spin ? MSG_DONTWAIT : 0;
  return move_all(size, timeout_ns,
                  [&](size_t done) { return ::recv(socket_, bytes + done, size - done, flags); });
}

uint64_t TcpPair::ping(std::span<double> samples_ns, uint32_t rounds, uint64_t timeout_ns) {
  const Timer& timer = Timer::instance();
  uint64_t number = 0;
  uint64_t start = timer.ticks();
  for (double& sample : samples_ns) {
    for (uint32_t round = 0; round < rounds; ++round, ++number) {
      std::memcpy(out_.data(), &number, std::min(sizeof number, out_.size()));
      if (!send_all(out_.data(), out_.size(), Wait::spin, timeout_ns) ||
          !receive_all(in_.data(), in_.size(), Wait::spin, timeout_ns)) {
        return number;
      }
      if (std::memcmp(out_.data(), in_.data(), std::min(sizeof number, out_.size())) != 0) return number;
    }
    const uint64_t end = timer.ticks();
    sample = timer.per_round_ns(start, end, rounds);
    start = end;
  }
  return number;
}

uint64_t TcpPair::pong(uint64_t rounds, uint64_t timeout_ns) {
  for (uint64_t number = 0; number < rounds; ++number) {
    if (!receive_all(in_.data(), in_.size(), Wait::spin, timeout_ns) ||
        !send_all(in_.data(), in_.size(), Wait::spin, timeout_ns)) {
      return number;
    }
  }
  return rounds;
}

uint64_t TcpPair::produce(uint64_t messages, uint64_t timeout_ns) {
  for (uint64_t number = 0; number < messages; ++number) {
    if (!send_all(out_.data(), out_.size(), Wait::block, timeout_ns)) return number;
  }
  std::byte receipt;
  const bool arrived =
      wait_for(socket_, POLLIN, timeout_ns) && receive_all(&receipt, 1, Wait::block, timeout_ns);
  return arrived ? messages : 0;
}

uint64_t TcpPair::consume(uint64_t messages, uint64_t timeout_ns) {
  if (!wait_for(socket_, POLLIN, timeout_ns)) return 0;
  for (uint64_t number = 0; number < messages; ++number) {
    if (!receive_all(in_.data(), in_.size(), Wait::block, timeout_ns)) return number;
  }
  const std::byte receipt{1};
  return send_all(&receipt, 1, Wait::block, timeout_ns) ? messages : 0;
}

}  // namespace verbena::bench
