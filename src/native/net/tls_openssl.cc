#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "net/openssl_library.h"
#include "net/tls.h"
#include "util/error.h"

namespace verbena::net {
namespace {

// AES-128 first: a quarter less work per byte, and no known attack on either.
constexpr char kSuites[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

[[noreturn]] void refuse(const std::string& why, ErrorCode code = "tls_file") {
  throw Error(code, "open device", why);
}

// OpenSSL's message for the oldest error of this thread.
std::string library_message() {
  const unsigned long error = openssl().ERR_peek_error();
  if (ERR_SYSTEM_ERROR(error)) return std::strerror(ERR_GET_REASON(error));
  const char* words = openssl().ERR_reason_error_string(error);
  return words ? words : "no reason given";
}

class OpenSslSession;
OpenSslSession& session_of(BIO* bio) { return *static_cast<OpenSslSession*>(openssl().BIO_get_data(bio)); }

int bio_read(BIO* bio, char* to, int size);
int bio_write(BIO* bio, const char* from, int size);

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = openssl().BIO_meth_new(BIO_TYPE_SOURCE_SINK, "verbena socket");
    openssl().BIO_meth_set_read(made, bio_read);
    openssl().BIO_meth_set_write(made, bio_write);
    openssl().BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

// `wanted`: the context's, as ALPN has it.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                    unsigned size, void* wanted) {
  const auto& protocol = *static_cast<const std::string*>(wanted);
  for (unsigned at = 0; at < size; at += 1u + offered[at]) {
    if (size - at < protocol.size() || std::memcmp(offered + at, protocol.data(), protocol.size()) != 0)
      continue;
    *out = offered + at + 1;
    *out_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

ErrorCode code_of_verification(long verdict) {
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "tls_expired";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "tls_wrong_host";
    default:
      return "tls_untrusted";
  }
}

ErrorCode code_of_reason(int reason) {
  switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:  // of the record: the bytes are not TLS
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
      return "tls_plain_peer";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return "tls_refused";
    default:
      return "tls_handshake";
  }
}

class OpenSslSession final : public ByteStream {
 public:
  OpenSslSession(SSL_CTX* context, int socket, const uint64_t& records_per_key, const std::string& protocol)
      : socket_(socket),
        ssl_(openssl().SSL_new(context)),
        records_per_key_(records_per_key),
        protocol_(protocol) {
    BIO* bio = ssl_ ? openssl().BIO_new(bio_method()) : nullptr;
    if (!bio) throw std::bad_alloc();
    openssl().BIO_set_data(bio, this);
    openssl().BIO_set_init(bio, 1);
    openssl().SSL_set_bio(ssl_, bio, bio);
  }
  ~OpenSslSession() override { openssl().SSL_free(ssl_); }

  void accept() { openssl().SSL_set_accept_state(ssl_); }
  void connect(const std::string& host) {
    openssl().SSL_set_connect_state(ssl_);
    X509_VERIFY_PARAM* rules = openssl().SSL_get0_param(ssl_);
    in6_addr ignored;
    const bool is_address =
        inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
    const int accepted = is_address ? openssl().X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str())
                                    : openssl().X509_VERIFY_PARAM_set1_host(rules, host.c_str(), 0);
    if (accepted != 1) {
      code_ = "tls_wrong_host";
      detail_ = "'" + host + "' is no name of a host";
    } else if (!is_address) {
      std::string name = host;
      openssl().SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
    }
  }

  Step handshake() override {
    if (!code_.empty()) return Step::failed;
    openssl().ERR_clear_error();
    const int result = openssl().SSL_do_handshake(ssl_);
    const int error = openssl().SSL_get_error(ssl_, result);
    const bool is_flushed = flush();
    if (error != SSL_ERROR_SSL && !is_flushed) return errno == EAGAIN ? Step::wants_write : lose();
    switch (error) {
      case SSL_ERROR_NONE:
        return check_protocol();
      case SSL_ERROR_WANT_READ:
        return Step::wants_read;
      default:
        explain("the peer closed the connection during the TLS handshake");
        return Step::failed;
    }
  }

  ssize_t read(std::span<const iovec> room) override {
    ssize_t total = 0;
    for (const iovec& piece : room) {
      openssl().ERR_clear_error();
      errno = 0;
      const int n = openssl().SSL_read(ssl_, piece.iov_base, static_cast<int>(piece.iov_len));
      if (n <= 0) return total > 0 ? total : fail(n);
      total += n;
      if (static_cast<size_t>(n) < piece.iov_len || !has_unread()) break;
    }
    return total;
  }

  ssize_t write(std::span<const iovec> pieces) override {
    if (has_unsent() && !flush()) return -1;
    size_t taken = 0, skip = 0;  // bytes of all pieces, and of the first
    for (size_t records = 0; records < kBatch && !pieces.empty(); ++records) {
      const std::span<const std::byte> plain = next_record(pieces, skip);
      if (plain.empty()) break;
      if (++records_ % records_per_key_ == 0) openssl().SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
      openssl().ERR_clear_error();
      errno = 0;
      const int n = openssl().SSL_write(ssl_, plain.data(), static_cast<int>(plain.size()));
      if (n <= 0) return fail(n);
      taken += plain.size();
    }
    return flush() || errno == EAGAIN ? static_cast<ssize_t>(taken) : -1;
  }

  bool flush() override {
    while (sent_ < sealed_.size()) {
      const ssize_t n =
          ::send(socket_, sealed_.data() + sent_, sealed_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      sent_ += static_cast<size_t>(n);
    }
    sent_ = 0;
    sealed_ = {};  // frees the buffer of an idle connection
    return true;
  }

  // Called by the library. Collects sealed records, which leave with one system call.
  int take_sealed(const char* from, int size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    if (sealed_.empty())
      sealed_.reserve(static_cast<size_t>(size) <= kHandshakeBytes ? kHandshakeBytes
                                                                   : kBatch * (kRecord + 64));
    sealed_.insert(sealed_.end(), bytes, bytes + size);
    return size;
  }
  int read_received(char* to, int size) const {
    ssize_t n;
    do n = ::recv(socket_, to, static_cast<size_t>(size), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return static_cast<int>(n);
  }

  void shutdown_write() override {
    openssl().ERR_clear_error();
    if (!code_.empty()) return;
    openssl().SSL_shutdown(ssl_);
    flush();
  }

  bool has_unsent() const override { return sent_ < sealed_.size(); }
  bool has_unread() const override { return openssl().SSL_pending(ssl_) > 0; }
  std::string cipher() const override {
    return openssl().SSL_CIPHER_get_name(openssl().SSL_get_current_cipher(ssl_));
  }

 private:
  static constexpr size_t kRecord = 16384;  // the maximum of TLS
  static constexpr size_t kBatch = 4;       // records per system call
  static constexpr size_t kHandshakeBytes = 4096;

  // The next bytes of the pieces that fit a record: in place if they are contiguous, else a copy.
  std::span<const std::byte> next_record(std::span<const iovec>& pieces, size_t& skip) {
    size_t size = 0;
    while (!pieces.empty() && size < kRecord) {
      const auto* from = static_cast<const std::byte*>(pieces.front().iov_base) + skip;
      const size_t left = pieces.front().iov_len - skip, n = std::min(left, kRecord - size);
      const bool ends_piece = n == left;
      skip = ends_piece ? 0 : skip + n;
      if (ends_piece) pieces = pieces.subspan(1);
      if (size == 0 && (n == kRecord || pieces.empty())) return {from, n};
      if (!gathered_) gathered_ = std::make_unique_for_overwrite<std::byte[]>(kRecord);
      std::memcpy(gathered_.get() + size, from, n);
      size += n;
    }
    return {gathered_.get(), size};
  }

  Step lose() {
    code_ = "tls_handshake";
    detail_ = "the peer closed the connection during the TLS handshake";
    return Step::failed;
  }

  Step check_protocol() {
    if (protocol_.empty()) return Step::done;
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    openssl().SSL_get0_alpn_selected(ssl_, &chosen, &size);
    if (size == protocol_.size() - 1 && std::memcmp(chosen, protocol_.data() + 1, size) == 0)
      return Step::done;
    code_ = "tls_handshake";
    detail_ = "the peer speaks TLS, but not this protocol over it";
    return Step::failed;
  }

  // The return value of read() and write() for a result <= 0 of the library.
  ssize_t fail(int result) {
    const int error_number = errno;
    switch (openssl().SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      default:
        explain("the peer cut the connection");
        errno = error_number != 0 && error_number != EAGAIN ? error_number : EPROTO;
        return -1;
    }
  }

  void explain(const char* otherwise) {
    const unsigned long error = openssl().ERR_peek_error();
    const long verdict = openssl().SSL_get_verify_result(ssl_);
    const int reason = ERR_GET_REASON(error);
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK) {
      code_ = code_of_verification(verdict);
      detail_ = openssl().X509_verify_cert_error_string(verdict);
    } else {
      code_ = error == 0 ? "tls_handshake" : code_of_reason(reason);
      detail_ = error == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING ? otherwise : library_message();
    }
  }

  const int socket_;
  SSL* const ssl_;
  const uint64_t& records_per_key_;
  const std::string& protocol_;
  uint64_t records_ = 0;
  std::vector<std::byte> sealed_;
  size_t sent_ = 0;  // of sealed_
  std::unique_ptr<std::byte[]> gathered_;
};

int bio_read(BIO* bio, char* to, int size) {
  openssl().BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  const int n = session_of(bio).read_received(to, size);
  if (n < 0 && errno == EAGAIN) openssl().BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
  return n;
}

int bio_write(BIO* bio, const char* from, int size) { return session_of(bio).take_sealed(from, size); }

class OpenSslContext final : public TlsContext {
 public:
  explicit OpenSslContext(const TlsOptions& options)
      : context_(openssl().SSL_CTX_new(openssl().TLS_method())) {
    if (!context_) refuse("OpenSSL: " + library_message(), "tls_missing");
    try {
      configure(options);
    } catch (...) {
      openssl().SSL_CTX_free(context_);
      throw;
    }
  }
  ~OpenSslContext() override { openssl().SSL_CTX_free(context_); }

  std::unique_ptr<ByteStream> accept(int socket) override {
    auto session = std::make_unique<OpenSslSession>(context_, socket, records_per_key, protocol_);
    session->accept();
    return session;
  }
  std::unique_ptr<ByteStream> connect(int socket, const std::string& host) override {
    auto session = std::make_unique<OpenSslSession>(context_, socket, records_per_key, protocol_);
    session->connect(host);
    return session;
  }

 private:
  void configure(const TlsOptions& options) {
    const OpenSsl& lib = openssl();
    for (const auto& [name, file] :
         {std::pair("certificate", &options.certificate), std::pair("key", &options.key),
          std::pair("authority", &options.authority)}) {
      if (file == &options.authority && options.protocol.empty() && !options.require_peer_certificate)
        continue;
      if (file->empty()) refuse(std::string("TLS needs a ") + name + ": the path of a PEM file");
    }
    lib.ERR_clear_error();
    lib.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr);
    lib.SSL_CTX_ctrl(context_, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr);
    // Idle connections release their buffers.
    lib.SSL_CTX_ctrl(context_, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                     nullptr);
    lib.SSL_CTX_ctrl(context_, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
    lib.SSL_CTX_set_num_tickets(context_, 0);  // no tickets after the handshake
    lib.SSL_CTX_set_ciphersuites(context_, kSuites);
    if (!options.protocol.empty()) {
      protocol_ = static_cast<char>(options.protocol.size()) + options.protocol;
      lib.SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(protocol_.data()),
                                  static_cast<unsigned>(protocol_.size()));
      lib.SSL_CTX_set_alpn_select_cb(context_, choose_protocol, &protocol_);
    }
    const auto check = [](int result, const std::string& what, const std::string& file) {
      if (result != 1) refuse(what + " '" + file + "': " + library_message());
    };
    check(lib.SSL_CTX_use_certificate_chain_file(context_, options.certificate.c_str()), "certificate",
          options.certificate);
    if (lib.SSL_CTX_use_PrivateKey_file(context_, options.key.c_str(), SSL_FILETYPE_PEM) != 1) {
      const int reason = ERR_GET_REASON(lib.ERR_peek_error());
      const bool other = reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH;
      refuse("key '" + options.key + "': " + library_message(),
             other ? ErrorCode("tls_key_mismatch") : "tls_file");
    }
    if (options.authority.empty()) return;  // no certificate is requested
    check(lib.SSL_CTX_load_verify_locations(context_, options.authority.c_str(), nullptr), "authority",
          options.authority);
    // A client always verifies the server; the flag is for clients' certificates.
    const int strict = options.require_peer_certificate ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    lib.SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | strict, nullptr);
  }

  SSL_CTX* const context_;
  std::string protocol_;  // in ALPN's form, its length first; empty: none
};

}  // namespace

std::unique_ptr<TlsContext> make_tls_context(const TlsOptions& options) {
  return std::make_unique<OpenSslContext>(options);
}

}  // namespace verbena::net
