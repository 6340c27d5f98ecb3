// TLS 1.3 under a connection: what the wire needs of it, without a library's types. tls_openssl.cc has it
// from OpenSSL, found at run time; tls_stub.cc says that it was not built in.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "providers/iwarp/options.h"

namespace verbena::iwarp {

// One connection's. Non-blocking, on a socket that the caller owns and that outlives it.
class TlsSession {
 public:
  enum class Step : uint8_t { done, wants_read, wants_write, failed };

  virtual ~TlsSession() = default;
  virtual Step shake_hands() = 0;
  // Like recv(2), into the pieces one after the other; at most a record. 0: the peer has ended it properly.
  virtual ssize_t read(std::span<const iovec> room) = 0;
  // Like send(2): what is taken was copied, and need not have left: see has_unsent().
  virtual ssize_t write(std::span<const iovec> pieces) = 0;
  // Tells the peer that no more comes. What it has to say itself is not waited for.
  virtual void say_goodbye() = 0;
  // Sends what was taken; false: not all, errno says why (EAGAIN: not now).
  virtual bool flush() = 0;
  virtual bool has_unsent() const = 0;
  virtual bool has_unread() const = 0;  // decrypted already: the socket will not tell of it
  virtual std::string cipher() const = 0;

  // After `failed`, or a read or write that failed: a code of errors.py, and the library's words.
  const std::string& error_code() const { return code_; }
  const std::string& error_detail() const { return detail_; }

 protected:
  std::string code_, detail_;
};

// Certificates and rules for the sessions of one context. Outlives them.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<TlsSession> answer(int socket) = 0;
  // `host`, a name or an address, is whom the peer's certificate must be for.
  virtual std::unique_ptr<TlsSession> call(int socket, const std::string& host) = 0;

  // Records sent under one key, at most. AES-GCM is safe for 2^24.5 of them; tests want fewer.
  uint64_t records_per_key = uint64_t{1} << 23;
};

// Throws tls_file, tls_key_mismatch, or tls_missing where there is no library.
std::unique_ptr<TlsContext> make_tls_context(const TlsOptions& options);

}  // namespace verbena::iwarp
