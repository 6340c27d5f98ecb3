// Endpoint: a UDP socket for many connections. Sends and receives datagrams in batches (recvmmsg, UDP_GRO,
// UDP_SEGMENT), with the local address of each, and reports unreachable peers. Knows nothing of QUIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/address.h"
#include "util/fd.h"

namespace verbena::quic {

using net::SocketAddress;

bool same_address(const SocketAddress& one, const SocketAddress& other);  // including the port

class Endpoint {
 public:
  // The addresses of a datagram. Without a `local` address the kernel chooses one.
  struct Route {
    SocketAddress local, remote;
  };

  static constexpr size_t kMaxBatchBytes = 65'000;  // in one send with UDP_SEGMENT
  static constexpr size_t kMaxSegments = 64;

  // Binds to the first address that allows it. Throws address_in_use or unreachable.
  Endpoint(const std::vector<SocketAddress>& addresses, const std::string& text);

  int socket() const { return socket_.get(); }
  const SocketAddress& address() const { return address_; }
  size_t receive_buffer_bytes() const { return receive_buffer_bytes_; }

  // Calls visit(datagram, route) for each datagram of a batch and returns the number of batches; 0: nothing
  // was waiting.
  template <typename Visit>
  size_t receive(Visit visit);
  // Calls visit(address) for each peer that an ICMP error reports as unreachable.
  template <typename Visit>
  void read_errors(Visit visit);

  // Sends datagrams of `segment` bytes each; the last may be shorter. If the kernel does not accept them now,
  // queues them for flush().
  void send(const Route& route, std::span<const std::byte> bytes, size_t segment);
  bool is_blocked() const { return !waiting_.empty(); }
  bool flush();  // sends queued datagrams; false: some are left

  uint64_t datagrams_in = 0, datagrams_out = 0, bytes_in = 0, bytes_out = 0, dropped_out = 0;
  uint32_t watched = 0;  // epoll events that the owner watches
  bool is_listening = false;

 private:
  struct Waiting {
    Route route;
    std::vector<std::byte> bytes;
    size_t segment;
  };
  struct Received {
    std::span<const std::byte> bytes;
    Route route;
    size_t segment;
  };
  static constexpr size_t kBatch = 8;
  static constexpr size_t kSlotBytes = 65536;
  static constexpr size_t kMaxWaiting = 64;  // queued batches; further ones are dropped

  size_t receive_batch(std::span<Received> out);
  bool next_error(SocketAddress& out);
  bool try_send(const Route& route, std::span<const std::byte> bytes, size_t segment);

  UnsharedFd socket_;
  SocketAddress address_;
  bool is_wildcard_ = false, segments_ = true;
  size_t receive_buffer_bytes_ = 0;
  std::unique_ptr<std::byte[]> slots_;
  std::deque<Waiting> waiting_;
};

template <typename Visit>
size_t Endpoint::receive(Visit visit) {
  Received batch[kBatch];
  const size_t count = receive_batch(batch);
  for (size_t i = 0; i < count; ++i) {
    for (std::span<const std::byte> left = batch[i].bytes; !left.empty();) {
      const size_t n = left.size() < batch[i].segment ? left.size() : batch[i].segment;
      ++datagrams_in;
      visit(left.first(n), batch[i].route);
      left = left.subspan(n);
    }
  }
  return count;
}

template <typename Visit>
void Endpoint::read_errors(Visit visit) {
  SocketAddress absent;
  while (next_error(absent)) visit(absent);
}

// The largest UDP payload for this peer. It exceeds what fits into an Ethernet frame only if the route's
// first link is the loopback: on every other route a later link may have a smaller MTU.
size_t max_datagram_bytes(const SocketAddress& remote);

}  // namespace verbena::quic
