// TLS 1.3 on a connection, without a library's types. tls_openssl.cc implements it with OpenSSL, loaded at
// run time; tls_stub.cc replaces it in builds without OpenSSL's headers and throws tls_missing.
#pragma once

#include <memory>
#include <string>

#include "net/byte_stream.h"

namespace verbena::net {

// PEM files. A context with them accepts and makes TLS 1.3 connections only.
struct TlsOptions {
  std::string certificate;  // this side's, followed by intermediate certificates
  std::string key;
  std::string authority;                 // trusted CA certificates
  bool require_peer_certificate = true;  // of clients; a server always presents one
  // ALPN: both ends must offer it. Empty (as clients of the store need): none is offered, and without an
  // authority no client certificate is requested.
  std::string protocol = "verbena-iwarp/1";
};

// Certificates and settings for TLS sessions. Must outlive them.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // The server's side. The caller owns the socket, which must outlive the session. A read returns at most a
  // record.
  virtual std::unique_ptr<ByteStream> accept(int socket) = 0;
  // The client's side. The peer's certificate must match `host`, a name or an address.
  virtual std::unique_ptr<ByteStream> connect(int socket, const std::string& host) = 0;

  // Records sent before a key update. AES-GCM is safe for 2^24.5; tests set fewer.
  uint64_t records_per_key = uint64_t{1} << 23;
};

// Throws tls_file, tls_key_mismatch, or tls_missing without the library.
std::unique_ptr<TlsContext> make_tls_context(const TlsOptions& options);

}  // namespace verbena::net
