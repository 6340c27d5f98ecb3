// StreamTransport: the source of byte streams for a context that does not use kernel TCP (QUIC implements
// it).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/byte_stream.h"
#include "verbs/types.h"

namespace verbena::iwarp {

// Where such streams come from. The context's progress thread runs it, and whoever reads or writes a stream.
// Empty in a context: kernel TCP.
class StreamTransport {
 public:
  struct Arrival {
    int place = -1;
    std::unique_ptr<net::ByteStream> stream;
  };

  virtual ~StreamTransport() = default;
  // Events on its sockets are to have this tag; `wake` ends an epoll_wait on `epoll` from any thread.
  virtual void start(int epoll, uint64_t tag, void (*wake)(void*), void* waker) = 0;
  virtual void close() = 0;

  // A place where peers reach us, on the first address that allows it. Throws address_in_use or unreachable.
  virtual int listen(const std::vector<net::SocketAddress>& addresses, const std::string& text) = 0;
  virtual void stop_listening(int place) = 0;  // streams that are there go on
  virtual net::SocketAddress address_of(int place) const = 0;
  // From `from_place` if that is one. `host` is whose certificate is wanted.
  virtual std::unique_ptr<net::ByteStream> dial(const net::SocketAddress& to, int from_place,
                                                const std::string& host) = 0;

  virtual void receive(int socket) = 0;  // it is readable, or writable again
  virtual bool has_arrival() const = 0;  // cheap, and perhaps late
  virtual std::optional<Arrival> next_arrival() = 0;
  virtual size_t ready_count() const = 0;
  virtual std::optional<uint64_t> next_ready() = 0;  // a key to be looked after
  virtual void looked_after(uint64_t key) = 0;
  virtual uint64_t deadline_ns() const = 0;  // UINT64_MAX: none
  virtual void check_timers(uint64_t now) = 0;
  virtual Counts counts() const = 0;
};

}  // namespace verbena::iwarp
