// TLS 1.3 under a connection: what the wire needs of it, without a library's types. tls_openssl.cc has it
// from OpenSSL, found at run time; tls_stub.cc says that it was not built in.
#pragma once

#include <memory>
#include <string>

#include "net/byte_stream.h"

namespace verbena::net {

// Files in PEM form. With them every connection of the context is TLS 1.3, and no other is taken.
struct TlsOptions {
  std::string certificate;  // ours, with what leads from it to the authority
  std::string key;
  std::string authority;                 // whom we believe
  bool require_peer_certificate = true;  // of those who call us; whom we call always shows one
  // Both ends must name it (ALPN), so that nothing else is taken for it. Empty, as the store's clients want
  // it: none is named, and without an authority nobody is asked for a certificate.
  std::string protocol = "verbena-iwarp/1";
};

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

}  // namespace verbena::net
