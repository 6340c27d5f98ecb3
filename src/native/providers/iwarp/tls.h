// TLS 1.3 under a connection: what the wire needs of it, without a library's types. tls_openssl.cc has it
// from OpenSSL, found at run time; tls_stub.cc says that it was not built in.
#pragma once

#include <memory>
#include <string>

#include "providers/iwarp/byte_stream.h"
#include "providers/iwarp/options.h"

namespace verbena::iwarp {

// Certificates and rules for the sessions of one context. Outlives them.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // On a socket that the caller owns and that outlives the session. A read takes a record at most.
  virtual std::unique_ptr<ByteStream> answer(int socket) = 0;
  // `host`, a name or an address, is whom the peer's certificate must be for.
  virtual std::unique_ptr<ByteStream> call(int socket, const std::string& host) = 0;

  // Records sent under one key, at most. AES-GCM is safe for 2^24.5 of them; tests want fewer.
  uint64_t records_per_key = uint64_t{1} << 23;
};

// Throws tls_file, tls_key_mismatch, or tls_missing where there is no library.
std::unique_ptr<TlsContext> make_tls_context(const TlsOptions& options);

}  // namespace verbena::iwarp
