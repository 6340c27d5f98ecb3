// StreamTransport: the source of byte streams for a context that does not use kernel TCP. QUIC implements it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/byte_stream.h"
#include "verbs/types.h"

namespace verbena::iwarp {

// Called by the context's progress thread and by any thread that reads or writes one of its streams. An
// endpoint id names a local address.
class StreamTransport {
 public:
  struct IncomingStream {
    int endpoint_id = -1;
    std::unique_ptr<net::ByteStream> stream;
  };

  virtual ~StreamTransport() = default;
  // Events on the transport's sockets carry `tag`. `wake` interrupts epoll_wait on `epoll` from any thread.
  virtual void start(int epoll, uint64_t tag, void (*wake)(void*), void* wake_argument) = 0;
  virtual void close() = 0;

  // Listens on the first address that allows it and returns its endpoint id. Throws address_in_use or
  // unreachable.
  virtual int listen(const std::vector<net::SocketAddress>& addresses, const std::string& text) = 0;
  virtual void stop_listening(int endpoint_id) = 0;  // existing streams continue
  virtual net::SocketAddress address_of(int endpoint_id) const = 0;
  // Dials from `from_endpoint_id` if that exists. `host` is the name that the peer's certificate must have.
  virtual std::unique_ptr<net::ByteStream> dial(const net::SocketAddress& to, int from_endpoint_id,
                                                const std::string& host) = 0;

  virtual void receive(int socket) = 0;   // the socket is readable, or writable again
  virtual bool has_incoming() const = 0;  // cheap; may be out of date
  virtual std::optional<IncomingStream> next_incoming() = 0;
  virtual size_t ready_count() const = 0;
  virtual std::optional<uint64_t>
  take_ready() = 0;  // the watch key of a ready stream; call ready_handled() after handling it
  virtual void ready_handled(uint64_t key) = 0;
  virtual uint64_t deadline_ns() const = 0;  // UINT64_MAX: none
  virtual void check_timers(uint64_t now) = 0;
  virtual Counts counts() const = 0;
};

}  // namespace verbena::iwarp
