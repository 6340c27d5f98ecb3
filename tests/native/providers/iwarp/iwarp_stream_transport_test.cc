// The progress thread and a StreamTransport: neither ready streams nor buffered bytes wait for a timer.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "providers/iwarp/channel.h"
#include "providers/iwarp/context.h"
#include "providers/soft/regions.h"
#include "util/clock.h"

using namespace verbena;
using namespace verbena::iwarp;

namespace {

constexpr uint64_t kTimeoutNs = 10'000'000'000;

// Has one stream that is ready a given number of times in a row, and never signals the doorbell.
class ReadyTransport final : public StreamTransport {
 public:
  explicit ReadyTransport(int times) : left_(times) {}
  int left() const { return left_; }

  void start(int, uint64_t, void (*)(void*), void*) override {}
  void close() override {}
  int listen(const std::vector<net::SocketAddress>&, const std::string&) override { return 1; }
  void stop_listening(int) override {}
  net::SocketAddress address_of(int) const override { return net::resolve("127.0.0.1:1", "test").front(); }
  std::unique_ptr<net::ByteStream> dial(const net::SocketAddress&, int, const std::string&) override {
    return {};
  }
  void receive(int) override {}
  bool has_incoming() const override { return false; }
  std::optional<IncomingStream> next_incoming() override { return std::nullopt; }
  size_t ready_count() const override { return left_ > 0 ? 1 : 0; }
  std::optional<uint64_t> take_ready() override {
    // The key of a queue pair that does not exist: it is ignored.
    return left_ > 0 ? std::optional(uint64_t{3} << 56 | 0xffffff) : std::nullopt;
  }
  void ready_handled(uint64_t) override { --left_; }
  uint64_t deadline_ns() const override { return UINT64_MAX; }
  void check_timers(uint64_t) override {}
  Counts counts() const override { return {}; }

 private:
  std::atomic<int> left_;
};

// Buffers a limited number of bytes and sends them at flush(). The peer confirms them at once, or never.
class BufferingStream final : public net::ByteStream {
 public:
  static constexpr size_t kLimit = 100'000;
  struct Counters {
    size_t held = 0, sent = 0;
    bool is_confirmed = true;
  };

  explicit BufferingStream(Counters& counters) : counters_(counters) {}
  Step handshake() override { return Step::done; }
  ssize_t read(std::span<const iovec>) override { return fail(); }
  ssize_t write(std::span<const iovec> pieces) override {
    size_t taken = 0;
    for (const iovec& piece : pieces) taken += piece.iov_len;
    taken = std::min(taken, kLimit - counters_.held);
    counters_.held += taken;
    return taken > 0 ? static_cast<ssize_t>(taken) : fail();
  }
  void shutdown_write() override {}
  bool flush() override {
    counters_.sent += counters_.held - std::exchange(unconfirmed_, 0);
    if (counters_.is_confirmed) {
      counters_.held = 0;
    } else {
      unconfirmed_ = counters_.held;
    }
    return true;
  }
  bool has_unsent() const override { return false; }
  bool has_unread() const override { return false; }
  std::string cipher() const override { return {}; }

 private:
  static ssize_t fail() {
    errno = EAGAIN;
    return -1;
  }

  Counters& counters_;
  size_t unconfirmed_ = 0;
};

// Never called, because nothing is received.
class NullHost final : public StreamHost {
 public:
  Refusal place_message(uint64_t, uint32_t, Placement&) override { return {}; }
  Refusal place_write(uint32_t, uint64_t, uint32_t, Placement&) override { return {}; }
  Refusal place_response(uint32_t, uint64_t, uint32_t, Placement&) override { return {}; }
  Refusal message_arrived(uint64_t, bool, const uint32_t*) override { return {}; }
  Refusal immediate_arrived(uint32_t, uint64_t, bool) override { return {}; }
  Refusal response_arrived(uint32_t, bool) override { return {}; }
  Refusal atomic_answered(uint32_t, uint64_t) override { return {}; }
  Refusal read_requested(const ReadRequest&) override { return {}; }
  Refusal execute_atomic(const AtomicRequest&, uint64_t&) override { return {}; }
  const std::byte* source(uint32_t, uint64_t, uint32_t) override { return nullptr; }
  void acknowledged(uint64_t) override {}
  void peer_not_ready(uint64_t, uint8_t) override {}
  void peer_ready() override {}
  void request_failed(uint64_t, Status) override {}
  void terminated(const Termination&) override {}
};

}  // namespace

TEST("a buffering stream is flushed when it is full, not at the end of the batch") {
  for (const bool is_confirmed : {true, false}) {
    BufferingStream::Counters counters{.is_confirmed = is_confirmed};
    NullHost host;
    Channel channel(net::StreamSocket(std::make_unique<BufferingStream>(counters)), {.initiator = true}, 1,
                    12, host);
    const std::vector<std::byte> payload(60'000);
    size_t bytes = 0;
    for (int i = 0; i < 10; ++i) {
      OutSegment* segment = channel.claim();
      segment->begin_tagged(RdmapOpcode::write, i == 9, 1, bytes);
      segment->add_piece(payload.data(), payload.size());
      segment->seal(true);
      bytes += channel.commit();
    }
    const Channel::Io result = channel.flush([](const OutSegment&) {});
    CHECK(result == (is_confirmed ? Channel::Io::done : Channel::Io::blocked));
    CHECK(counters.sent == (is_confirmed ? bytes : BufferingStream::kLimit));
  }
}

TEST("a stream that is still ready is handled again at once") {
  const auto transport = std::make_shared<ReadyTransport>(100);
  const net::Interface loopback = net::interfaces().back();
  const auto context = std::make_shared<IwarpContext>(iwarp_device_attributes(loopback), loopback, Options{},
                                                      soft::private_region_entries(), transport);
  context->start();
  const uint64_t deadline = now_ns() + kTimeoutNs;
  while (transport->left() > 0 && now_ns() < deadline) std::this_thread::yield();
  CHECK(transport->left() == 0);
  context->close();
}

RUN_TESTS()
