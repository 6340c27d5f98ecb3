// Certificates for the connections of one context, loaded again when their files have changed, and the result
// of a verification.
#pragma once

#include <sys/stat.h>

#include <array>
#include <memory>
#include <string>

#include "providers/quic/library.h"
#include "providers/quic/options.h"

namespace verbena::quic {

// One load of the files. A connection keeps the load that it began with.
class Certificates {
 public:
  // Throws tls_file or tls_key_mismatch.
  Certificates(const net::TlsOptions& files, const std::string& revoked);
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  gnutls_certificate_credentials_t get() const { return credentials_; }

 private:
  gnutls_certificate_credentials_t credentials_ = nullptr;
};

class Credentials {
 public:
  Credentials(const net::TlsOptions& files, std::string revoked);

  // The certificates as the files are now. If the files are invalid, the last valid load stays in use.
  std::shared_ptr<const Certificates> current();
  uint64_t reloads() const { return reloads_; }
  uint64_t failed_reloads() const { return failed_reloads_; }
  bool requires_peer_certificate() const { return files_.require_peer_certificate; }

 private:
  struct Stamp {
    ino_t inode = 0;
    off_t size = 0;
    timespec changed{};
    bool operator==(const Stamp& other) const {
      return inode == other.inode && size == other.size && changed.tv_sec == other.changed.tv_sec &&
             changed.tv_nsec == other.changed.tv_nsec;
    }
  };
  using Stamps = std::array<Stamp, 4>;
  Stamps look() const;

  const net::TlsOptions files_;
  const std::string revoked_;
  Stamps seen_;
  std::shared_ptr<const Certificates> current_;
  uint64_t reloads_ = 0, failed_reloads_ = 0;
};

// Why a peer's certificate, or ours at the peer, was refused: an error code, details, and the TLS alert for
// the other end.
struct EndReason {
  ErrorCode code;
  std::string detail;
  uint8_t alert = 0;

  explicit operator bool() const { return !code.empty(); }
};

// Checks the certificate of the session's peer. `host`: the name that it must have; empty: any.
EndReason verify_peer(gnutls_session_t session, const std::string& host, bool is_required);
// What an alert from the peer means for us.
EndReason reason_of_alert(uint8_t alert);

}  // namespace verbena::quic
