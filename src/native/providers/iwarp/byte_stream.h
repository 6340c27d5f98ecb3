// What a wire reads and writes by when it is more than a bare socket: TLS on one (tls.h), or a stream of a
// protocol that has no socket for each (quic/). Non-blocking; results are those of the system calls, with
// errno.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "providers/iwarp/address.h"

namespace verbena::iwarp {

class ByteStream {
 public:
  enum class Step : uint8_t { done, wants_read, wants_write, failed };

  virtual ~ByteStream() = default;
  virtual Step shake_hands() = 0;
  // Like recv(2), into the pieces one after the other. 0: the peer has ended it properly.
  virtual ssize_t read(std::span<const iovec> room) = 0;
  // Like send(2): what is taken was copied, and need not have left: see has_unsent().
  virtual ssize_t write(std::span<const iovec> pieces) = 0;
  // Tells the peer that no more comes. What it has to say itself is not waited for.
  virtual void say_goodbye() = 0;
  // Sends what was taken; false: not all, errno says why (EAGAIN: not now).
  virtual bool flush() = 0;
  virtual bool has_unsent() const = 0;
  virtual bool has_unread() const = 0;  // at hand already: no event tells of it
  virtual bool is_empty_after_short_read() const { return false; }
  virtual size_t unconfirmed() const { return 0; }  // bytes that the peer's end has not confirmed yet
  virtual std::string cipher() const = 0;

  // The rest is for streams without a socket. `key` becomes ready when one of `events` (those of epoll)
  // holds, and again for as long as it does; 0: somebody else looks after the stream.
  virtual void watch(uint64_t /*key*/, uint32_t /*events*/) {}
  virtual bool has_room() const { return true; }
  virtual bool is_abandoned() const { return false; }  // by the peer
  virtual SocketAddress peer() const { return {}; }

  // After `failed`, or a read or write that failed: a code of errors.py, and the library's words.
  const std::string& error_code() const { return code_; }
  const std::string& error_detail() const { return detail_; }

 protected:
  std::string code_, detail_;
};

// Where such streams come from. The context's progress thread runs it, and whoever reads or writes a stream.
// Empty in a context: kernel TCP.
class Carrier {
 public:
  struct Arrival {
    int place = -1;
    std::unique_ptr<ByteStream> stream;
  };

  virtual ~Carrier() = default;
  // Events on its sockets are to have this tag; `wake` ends an epoll_wait on `epoll` from any thread.
  virtual void start(int epoll, uint64_t tag, void (*wake)(void*), void* waker) = 0;
  virtual void close() = 0;

  // A place where peers reach us, on the first address that allows it. Throws address_in_use or unreachable.
  virtual int listen(const std::vector<SocketAddress>& addresses, const std::string& text) = 0;
  virtual void stop_listening(int place) = 0;  // streams that are there go on
  virtual SocketAddress address_of(int place) const = 0;
  // From `from_place` if that is one. `host` is whose certificate is wanted.
  virtual std::unique_ptr<ByteStream> dial(const SocketAddress& to, int from_place,
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
