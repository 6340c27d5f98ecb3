// A byte stream that is more than a plain socket: TLS on a socket (tls.h), or a stream of a protocol without
// a socket per stream (quic/). Non-blocking; results are those of the system calls, with errno.
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
  virtual Step handshake() = 0;
  // Like readv(2). 0: the peer has closed its direction in an orderly way.
  virtual ssize_t read(std::span<const iovec> room) = 0;
  // Like writev(2). The bytes were copied, but need not have been sent: see has_unsent().
  virtual ssize_t write(std::span<const iovec> pieces) = 0;
  // Signals the end of this direction to the peer, without waiting for the peer's.
  virtual void shutdown_write() = 0;
  // Sends what write() has copied. False: not all of it; errno is the reason (EAGAIN: try again later).
  virtual bool flush() = 0;
  virtual bool has_unsent() const = 0;
  virtual bool has_unread() const = 0;  // buffered bytes, for which no event comes
  virtual bool is_empty_after_short_read() const { return false; }
  virtual size_t unconfirmed() const { return 0; }  // sent bytes that the peer has not acknowledged
  virtual std::string cipher() const = 0;

  // The rest is for streams without a socket. `key` becomes ready while one of `events` (epoll's) holds; key
  // 0: the stream is not watched.
  virtual void watch(uint64_t /*key*/, uint32_t /*events*/) {}
  virtual bool has_room() const { return true; }
  virtual bool is_abandoned() const { return false; }  // the peer has closed or reset it
  virtual SocketAddress peer() const { return {}; }

  // After `failed`, or a read or write that failed: why, and the message of the TLS or QUIC library.
  ErrorCode error_code() const { return code_; }
  const std::string& error_detail() const { return detail_; }

 protected:
  ErrorCode code_;
  std::string detail_;
};

}  // namespace verbena::net
