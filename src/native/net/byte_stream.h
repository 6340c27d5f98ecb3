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

#include "net/address.h"
#include "util/error_code.h"

namespace verbena::net {

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

  // After `failed`, or a read or write that failed: why, and the message of the TLS or QUIC library.
  ErrorCode error_code() const { return code_; }
  const std::string& error_detail() const { return detail_; }

 protected:
  ErrorCode code_;
  std::string detail_;
};

}  // namespace verbena::net
