#include "providers/quic/credentials.h"

#include <unistd.h>

#include <cstdlib>

#include "util/error.h"

namespace verbena::quic {
namespace {

[[noreturn]] void refuse(const std::string& role, const std::string& file, int error,
                         ErrorCode code = "tls_file") {
  throw Error(code, "open device", role + " '" + file + "': " + library().gnutls_strerror(error));
}

void check_readable(const std::string& role, const std::string& file) {
  if (file.empty())
    throw Error("tls_file", "open device", "QUIC needs a " + role + ": the path of a PEM file");
  if (::access(file.c_str(), R_OK) != 0)
    throw Error("tls_file", "open device", role + " '" + file + "'", errno);
}

struct Reason {
  unsigned flag;
  ErrorCode code;
  uint8_t alert;
};

// The most specific first.
constexpr Reason kReasons[] = {
    {GNUTLS_CERT_REVOKED, "tls_revoked", GNUTLS_A_CERTIFICATE_REVOKED},
    {GNUTLS_CERT_SIGNER_NOT_FOUND, "tls_untrusted", GNUTLS_A_UNKNOWN_CA},
    {GNUTLS_CERT_SIGNER_NOT_CA, "tls_untrusted", GNUTLS_A_UNKNOWN_CA},
    {GNUTLS_CERT_EXPIRED, "tls_expired", GNUTLS_A_CERTIFICATE_EXPIRED},
    {GNUTLS_CERT_NOT_ACTIVATED, "tls_expired", GNUTLS_A_CERTIFICATE_EXPIRED},
    {GNUTLS_CERT_UNEXPECTED_OWNER, "tls_wrong_host", GNUTLS_A_BAD_CERTIFICATE},
};

}  // namespace

Certificates::Certificates(const net::TlsOptions& files, const std::string& revoked) {
  const Library& lib = library();
  // A client may have no certificate of its own if the peer allows that.
  const bool has_own = !files.certificate.empty() || !files.key.empty();
  if (has_own) check_readable("certificate", files.certificate);
  if (has_own) check_readable("key", files.key);
  check_readable("authority", files.authority);
  if (!revoked.empty()) check_readable("list of revoked certificates", revoked);
  if (lib.gnutls_certificate_allocate_credentials(&credentials_) < 0) throw std::bad_alloc();
  try {
    int result = 0;
    if (has_own) {
      result = lib.gnutls_certificate_set_x509_key_file(credentials_, files.certificate.c_str(),
                                                        files.key.c_str(), GNUTLS_X509_FMT_PEM);
    }
    if (result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) refuse("key", files.key, result, "tls_key_mismatch");
    if (result < 0) refuse("certificate '" + files.certificate + "' or key", files.key, result);
    result = lib.gnutls_certificate_set_x509_trust_file(credentials_, files.authority.c_str(),
                                                        GNUTLS_X509_FMT_PEM);
    if (result <= 0)
      refuse("authority", files.authority, result < 0 ? result : GNUTLS_E_NO_CERTIFICATE_FOUND);
    if (!revoked.empty()) {
      result = lib.gnutls_certificate_set_x509_crl_file(credentials_, revoked.c_str(), GNUTLS_X509_FMT_PEM);
      if (result < 0) refuse("list of revoked certificates", revoked, result);
    }
  } catch (...) {
    lib.gnutls_certificate_free_credentials(credentials_);
    throw;
  }
}

Certificates::~Certificates() { library().gnutls_certificate_free_credentials(credentials_); }

Credentials::Credentials(const net::TlsOptions& files, std::string revoked)
    : files_(files),
      revoked_(std::move(revoked)),
      seen_(look()),
      current_(std::make_shared<const Certificates>(files_, revoked_)) {}

Credentials::Stamps Credentials::look() const {
  Stamps stamps;
  const std::string* names[] = {&files_.certificate, &files_.key, &files_.authority, &revoked_};
  for (size_t i = 0; i < stamps.size(); ++i) {
    struct stat found{};
    if (names[i]->empty() || ::stat(names[i]->c_str(), &found) != 0) continue;
    stamps[i] = {found.st_ino, found.st_size, found.st_mtim};
  }
  return stamps;
}

std::shared_ptr<const Certificates> Credentials::current() {
  const Stamps now = look();
  if (now == seen_) return current_;
  seen_ = now;
  try {
    current_ = std::make_shared<const Certificates>(files_, revoked_);
    ++reloads_;
  } catch (const Error&) {
    ++failed_reloads_;
  }
  return current_;
}

EndReason verify_peer(gnutls_session_t session, const std::string& host, bool is_required) {
  const Library& lib = library();
  unsigned count = 0;
  if (!lib.gnutls_certificate_get_peers(session, &count) || count == 0) {
    if (!is_required) return {};
    return {"tls_untrusted", "the peer showed no certificate", GNUTLS_A_CERTIFICATE_REQUIRED};
  }
  unsigned status = 0;
  const char* name = host.empty() ? nullptr : host.c_str();
  const int result = lib.gnutls_certificate_verify_peers3(session, name, &status);
  if (result < 0) return {"tls_untrusted", lib.gnutls_strerror(result), GNUTLS_A_BAD_CERTIFICATE};
  if (status == 0) return {};
  gnutls_datum_t text{};
  std::string detail = "the peer's certificate was refused";
  if (lib.gnutls_certificate_verification_status_print(status, lib.gnutls_certificate_type_get(session),
                                                       &text, 0) == 0) {
    detail.assign(reinterpret_cast<const char*>(text.data), text.size);
    std::free(text.data);
    while (!detail.empty() && detail.back() == ' ') detail.pop_back();
  }
  for (const Reason& reason : kReasons) {
    if (status & reason.flag) return {reason.code, detail, reason.alert};
  }
  return {"tls_untrusted", detail, GNUTLS_A_BAD_CERTIFICATE};
}

EndReason reason_of_alert(uint8_t alert) {
  const char* name = library().gnutls_alert_get_name(static_cast<gnutls_alert_description_t>(alert));
  const std::string text = name ? name : "alert " + std::to_string(alert);
  switch (alert) {
    case GNUTLS_A_BAD_CERTIFICATE:
    case GNUTLS_A_UNSUPPORTED_CERTIFICATE:
    case GNUTLS_A_CERTIFICATE_REVOKED:
    case GNUTLS_A_CERTIFICATE_EXPIRED:
    case GNUTLS_A_CERTIFICATE_UNKNOWN:
    case GNUTLS_A_UNKNOWN_CA:
    case GNUTLS_A_ACCESS_DENIED:
    case GNUTLS_A_CERTIFICATE_REQUIRED:
      return {"tls_refused", "the peer reports: " + text, alert};
    default:
      return {"tls_handshake", "the peer reports: " + text, alert};
  }
}

}  // namespace verbena::quic
