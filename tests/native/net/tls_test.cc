// A TLS session without a provider: two of them over a socket pair that is often full, keys that change while
// bytes are under way, ends that are proper and ends that are not.
#include "net/tls.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "check.h"
#include "net/stream_socket.h"
#include "util/error.h"

using namespace verbena;
using namespace verbena::net;
using Bytes = std::vector<std::byte>;

namespace {

// A certificate that is its own authority, made once; empty where the openssl command or the library is not.
const std::optional<net::TlsOptions>& self_signed() {
  static const std::optional<net::TlsOptions> made = []() -> std::optional<net::TlsOptions> {
    static char folder[] = "/tmp/verbena-tls-XXXXXX";
    CHECK(mkdtemp(folder));
    std::atexit([] { std::filesystem::remove_all(folder); });
    const std::string key = std::string(folder) + "/key.pem", certificate = std::string(folder) + "/end.pem";
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=test -days 2 "
        "-addext subjectAltName=DNS:test.example -keyout " +
        key + " -out " + certificate + " 2>/dev/null";
    if (std::system(command.c_str()) != 0) return std::nullopt;
    net::TlsOptions options{certificate, key, certificate, true};
    try {
      net::make_tls_context(options);
    } catch (const Error&) {
      return std::nullopt;
    }
    return options;
  }();
  if (!made) std::printf("(skipped: no OpenSSL here) ");
  return made;
}

struct Pair {
  explicit Pair(const std::string& host = "test.example") : context(net::make_tls_context(*self_signed())) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const int small = 4096;
    for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    caller = net::StreamSocket(UniqueFd(ends[0]));
    called = net::StreamSocket(UniqueFd(ends[1]));
    caller.encrypt(context->connect(ends[0], host));
    called.encrypt(context->accept(ends[1]));
  }

  bool handshake() const {
    using Step = net::ByteStream::Step;
    for (int i = 0; i < 100; ++i) {
      const Step one = caller.stream()->handshake(), other = called.stream()->handshake();
      if (one == Step::failed || other == Step::failed) return false;
      if (one == Step::done && other == Step::done) return true;
    }
    return false;
  }

  std::unique_ptr<net::TlsContext> context;
  net::StreamSocket caller, called;
};

// Sends all of `bytes` in pieces of odd sizes, and takes it at the other end into pieces of others.
Bytes carry(net::StreamSocket& from, net::StreamSocket& to, const Bytes& bytes, int& times_full) {
  Bytes arrived(bytes.size());
  size_t sent = 0, got = 0;
  while (got < bytes.size()) {
    if (sent < bytes.size()) {
      const size_t first = std::min<size_t>(bytes.size() - sent, 777), left = bytes.size() - sent - first;
      auto* at = const_cast<std::byte*>(bytes.data() + sent);
      const iovec pieces[] = {{at, first}, {at + first, left}};
      const ssize_t n = from.write(pieces);
      CHECK(n > 0 || net::would_block(errno));
      if (n > 0) sent += static_cast<size_t>(n);
      times_full += from.has_unsent();
    } else {
      CHECK(from.flush() || net::would_block(errno));
    }
    const size_t first = std::min<size_t>(bytes.size() - got, 100), left = bytes.size() - got - first;
    const iovec room[] = {{arrived.data() + got, first}, {arrived.data() + got + first, left}};
    const ssize_t n = to.read({room, left > 0 ? 2u : 1u});
    CHECK(n > 0 || (n < 0 && net::would_block(errno)));
    if (n > 0) got += static_cast<size_t>(n);
  }
  return arrived;
}

Bytes pattern(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

}  // namespace

TEST("bytes arrive in order in both directions although the socket buffers are full most of the time") {
  if (!self_signed()) return;
  Pair pair;
  CHECK(pair.handshake());
  int times_full = 0;
  const Bytes bytes = pattern(500'000);
  CHECK(carry(pair.caller, pair.called, bytes, times_full) == bytes);
  CHECK(carry(pair.called, pair.caller, bytes, times_full) == bytes);
  CHECK(times_full > 0);
}

TEST("keys are renewed while bytes are in flight") {
  if (!self_signed()) return;
  Pair pair;
  pair.context->records_per_key = 3;
  CHECK(pair.handshake());
  int times_full = 0;
  const Bytes bytes = pattern(400'000);
  CHECK(carry(pair.caller, pair.called, bytes, times_full) == bytes);
  CHECK(carry(pair.called, pair.caller, bytes, times_full) == bytes);
}

TEST("close_notify is an end of file, and a cut connection is an error") {
  if (!self_signed()) return;
  for (const bool proper : {true, false}) {
    Pair pair;
    CHECK(pair.handshake());
    if (proper) pair.caller.shutdown_write();
    if (!proper) shutdown(pair.caller.socket(), SHUT_WR);
    std::byte byte;
    const iovec room{&byte, 1};
    CHECK(pair.called.read({&room, 1}) == (proper ? 0 : -1));
    CHECK(pair.called.stream()->error_code() == (proper ? ErrorCode() : "tls_handshake"));
  }
}

TEST("a forged record ends the connection and delivers nothing") {
  if (!self_signed()) return;
  Pair pair;
  CHECK(pair.handshake());
  uint8_t forged[40] = {23, 3, 3, 0, 35};
  CHECK(::send(pair.caller.socket(), forged, sizeof forged, 0) == sizeof forged);
  std::byte byte;
  const iovec room{&byte, 1};
  CHECK(pair.called.read({&room, 1}) == -1 && !net::would_block(errno));
  CHECK(pair.called.stream()->error_code() == "tls_handshake");
}

TEST("the client verifies the server's name") {
  if (!self_signed()) return;
  Pair pair("other.example");
  CHECK(!pair.handshake());
  CHECK(pair.caller.stream()->error_code() == "tls_wrong_host");
}

RUN_TESTS()
