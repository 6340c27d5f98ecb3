// The progress thread and a carrier of streams: nothing that is ready waits for the clock.
#include <atomic>
#include <thread>

#include "check.h"
#include "providers/iwarp/context.h"
#include "providers/soft/regions.h"
#include "util/clock.h"

using namespace verbena;
using namespace verbena::iwarp;

namespace {

constexpr uint64_t kPatienceNs = 10'000'000'000;

// Has one stream that is ready so many times in a row, and never rings.
class Quiet final : public Carrier {
 public:
  explicit Quiet(int times) : left_(times) {}
  int left() const { return left_; }

  void start(int, uint64_t, void (*)(void*), void*) override {}
  void close() override {}
  int listen(const std::vector<SocketAddress>&, const std::string&) override { return 1; }
  void stop_listening(int) override {}
  SocketAddress address_of(int) const override { return resolve("127.0.0.1:1", "test").front(); }
  std::unique_ptr<ByteStream> dial(const SocketAddress&, int, const std::string&) override { return {}; }
  void receive(int) override {}
  bool has_arrival() const override { return false; }
  std::optional<Arrival> next_arrival() override { return std::nullopt; }
  size_t ready_count() const override { return left_ > 0 ? 1 : 0; }
  std::optional<uint64_t> next_ready() override {
    // The key of a queue pair that is gone: nobody does anything about it.
    return left_ > 0 ? std::optional(uint64_t{3} << 56 | 0xffffff) : std::nullopt;
  }
  void looked_after(uint64_t) override { --left_; }
  uint64_t deadline_ns() const override { return UINT64_MAX; }
  void check_timers(uint64_t) override {}
  Counts counts() const override { return {}; }

 private:
  std::atomic<int> left_;
};

}  // namespace

TEST("a stream that is still ready has its next turn at once") {
  const auto carrier = std::make_shared<Quiet>(100);
  const Interface loopback = interfaces().back();
  const auto context = std::make_shared<IwarpContext>(iwarp_device_attributes(loopback), loopback, Options{},
                                                      soft::private_region_entries(), carrier);
  context->start();
  const uint64_t deadline = now_ns() + kPatienceNs;
  while (carrier->left() > 0 && now_ns() < deadline) std::this_thread::yield();
  CHECK(carrier->left() == 0);
  context->close();
}

RUN_TESTS()
