// Two correct ends of a stream: every operation, and failures that neither end causes.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "iwarp_ends.h"

using namespace ends;

TEST("the initiator's RTR message lets the responder send and is not counted as a request") {
  End a(true, true, true), b(false, true, true);
  CHECK(a.stream.may_send() && !b.stream.may_send());
  a.send_pending();
  CHECK(b.feed(a.out));
  CHECK(b.stream.may_send() && !b.stream.is_ack_due());
}

TEST("messages and writes of any length arrive and are acknowledged") {
  for (const size_t mulpdu : {100ul, 1408ul, kMaxSegmentPayload}) {
    for (const size_t length : {0ul, 1ul, 99ul, 100ul, 101ul, 65408ul, 65409ul, 150000ul}) {
      Pair pair(true, true, mulpdu);
      const Bytes bytes = pattern(length);
      pair.a.send(bytes);
      pair.a.write(bytes, 8);
      pair.exchange();
      Memory& target = pair.b.memory;
      CHECK(target.messages == std::vector<uint64_t>{length});
      CHECK(std::equal(bytes.begin(), bytes.end(), target.receives.buffer.begin()));
      CHECK(std::equal(bytes.begin(), bytes.end(), target.region.bytes.begin() + 8));
      CHECK(pair.a.memory.executed.back() == 2);
    }
  }
}

TEST("a run is placed completely, however the stream is cut") {
  for (const bool crc : {true, false}) {
    for (const size_t mulpdu : {100ul, 4096ul, kMaxSegmentPayload}) {
      for (const size_t step : {1ul, 89ul, 5000ul, 1000000ul}) {
        const size_t length = std::min<size_t>(mulpdu * 11 + 17, 190'000);
        if (length / step > 100'000) continue;
        Pair pair(true, crc, mulpdu);
        const Bytes bytes = pattern(length);
        CHECK(pair.b.feed(announced_write(pair, bytes, 8), step));
        CHECK(std::equal(bytes.begin(), bytes.end(), pair.b.memory.region.bytes.begin() + 8));
        CHECK(pair.b.memory.region.bytes[8 + length] == std::byte{0} && pair.b.stream.announced_bytes() == 0);
        pair.b.memory.region.bytes = pattern(200'000, 5);
        pair.a.read(100, static_cast<uint32_t>(length));
        CHECK(pair.b.feed(std::exchange(pair.a.out, {}), step));
        pair.b.send_pending();
        CHECK(pair.a.feed(std::exchange(pair.b.out, {}), step));
        CHECK(pair.a.memory.responses == 1 && pair.a.memory.response_bytes == length);
        CHECK(std::memcmp(pair.a.memory.sink.data(), pair.b.memory.region.bytes.data() + 100, length) == 0);
      }
    }
  }
}

TEST("a run that was announced is counted down") {
  Pair pair(true, true, 1000);
  const Bytes wire = announced_write(pair, pattern(6000));
  const size_t segment = 2 + 14 + 1000 + 4, word = wire.size() - 6 * segment;
  CHECK(pair.b.feed({wire.data(), wire.data() + word}));
  CHECK(pair.b.stream.announced_bytes() == 6000 && pair.a.memory.executed.empty());
  CHECK(pair.b.feed({wire.data() + word, wire.data() + wire.size() - segment - 1}));
  CHECK(pair.b.stream.announced_bytes() == 2000);
  CHECK(pair.b.feed({wire.end() - segment - 1, wire.end()}));
  CHECK(pair.b.stream.announced_bytes() == 0);
}

TEST("a region that is closed during a run receives no more of it") {
  Pair pair(true, true, 1000);
  const Bytes wire = announced_write(pair, pattern(6000));
  CHECK(pair.b.feed({wire.begin(), wire.begin() + 2500}, 100'000));
  pair.b.memory.region.is_gone = true;
  pair.b.stream.revalidate();
  const Bytes before = pair.b.memory.region.bytes;
  CHECK(!pair.b.feed({wire.begin() + 2500, wire.end()}, 100'000));
  CHECK(pair.b.memory.region.bytes == before &&
        pair.b.stream.fault()->refusal.status == Status::rem_access_err);
}

TEST("a run behind a message that found no receive is dropped with it") {
  Pair pair(true, true, 1000);
  pair.b.memory.receives.posted = 0;
  pair.a.send(pattern(10));
  pair.a.write(pattern(6000), 0);
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{0} && !pair.b.stream.fault());
  CHECK(pair.b.stream.announced_bytes() == 0 && pair.b.memory.region.bytes[0] == std::byte{0});
}

TEST("immediates travel with messages and behind writes, solicited or not") {
  Pair pair;
  const uint32_t seven = 7;
  pair.a.send(pattern(10), &seven, true);
  pair.a.write(pattern(40), 0);
  pair.a.stream.count_request();
  pair.a.stream.compose_immediate(pair.a.segment, 9, false);
  pair.a.push();
  pair.exchange();
  CHECK((pair.b.memory.immediates == std::vector<uint32_t>{7, 9}));
  CHECK(pair.b.memory.written == std::vector<uint64_t>{40});
  CHECK(pair.b.memory.solicited == 1 && pair.a.memory.executed.back() == 3);
}

TEST("reads come back in segments and atomics with the old value") {
  for (const bool crc : {true, false}) {
    Pair pair(true, crc);
    pair.b.memory.region.bytes = pattern(200'000, 5);
    pair.a.read(100, 150'000);
    pair.exchange();
    CHECK(pair.a.memory.responses == 1 && pair.a.memory.response_bytes == 150'000);
    CHECK(std::memcmp(pair.a.memory.sink.data(), pair.b.memory.region.bytes.data() + 100, 150'000) == 0);
    pair.b.memory.region.bytes.assign(64, std::byte{0});
    pair.a.stream.compose_atomic(pair.a.segment, {.id = 4, .stag = kKey, .offset = 8, .add_or_swap = 41});
    pair.a.stream.count_request();
    pair.a.push();
    pair.exchange();
    CHECK(pair.a.memory.responses == 2 && pair.a.memory.original == 0);
    CHECK(pair.b.memory.region.bytes[8] == std::byte{41});
  }
}

TEST("markers in one or both directions do not change the exchange") {
  for (const Marked marked : {Marked{true, false}, Marked{false, true}, Marked{true, true}}) {
    for (const bool crc : {true, false}) {
      Pair pair(true, crc, kMaxSegmentPayload, marked);
      const Bytes bytes = pattern(150'000);
      pair.a.send(bytes);
      pair.a.write(bytes, 8);
      pair.a.read(8, 150'000);
      pair.exchange();
      CHECK(pair.b.memory.messages == std::vector<uint64_t>{150'000});
      CHECK(std::equal(bytes.begin(), bytes.end(), pair.b.memory.receives.buffer.begin()));
      CHECK(pair.a.memory.responses == 1 && pair.a.memory.executed.back() == 3);
      CHECK(std::equal(bytes.begin(), bytes.end(), pair.a.memory.sink.begin()));
      CHECK(!pair.a.stream.in_segment() && !pair.b.stream.in_segment());
      pair.a.write(pattern(1000, 3), 0);
      const Bytes part(pair.a.out.begin(), pair.a.out.begin() + 600);
      pair.a.out.erase(pair.a.out.begin(), pair.a.out.begin() + 600);
      CHECK(pair.b.feed(part) && pair.b.stream.in_segment());  // what the stall detector checks
      pair.exchange();
      CHECK(!pair.b.stream.in_segment() && pair.a.memory.executed.back() == 4);
      pair.a.write(pattern(8), 0, kKey + 1);
      pair.exchange();
      CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1100});
    }
  }
}

TEST("a refused write fails the request that caused it, and only then the stream ends") {
  Pair pair;
  pair.b.memory.region.bytes = pattern(1000, 3);
  pair.a.read(0, 100);
  pair.a.write(pattern(8), 0, kKey + 1);
  pair.a.write(pattern(8, 9), 16);
  pair.exchange();
  CHECK(pair.a.memory.responses == 1);
  CHECK((pair.a.memory.failures == std::vector<std::pair<uint64_t, Status>>{{2, Status::rem_access_err}}));
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1100});
  CHECK(pair.b.memory.region.bytes == pattern(1000, 3));
}

TEST("a foreign peer gets only the TERMINATE, and nothing is acknowledged") {
  Pair pair(false);
  pair.a.send(pattern(5));
  pair.a.write(pattern(8), 999'999);
  pair.exchange();
  CHECK(pair.b.memory.messages.size() == 1);
  CHECK(pair.a.memory.executed.empty() && pair.a.memory.failures.empty());
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1101});
}

TEST("a message without a receive waits between Verbena ends, with all that is behind it") {
  Pair pair(true, true, 100);
  pair.b.memory.receives.posted = 0;
  pair.a.write(pattern(10), 0);
  pair.a.send(pattern(250));
  pair.a.write(pattern(10, 7), 50);
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{1});
  CHECK(pair.b.memory.region.bytes[51] == std::byte{0} && pair.b.memory.region.bytes[1] != std::byte{0});
  pair.a.stream.rewind(1);
  pair.b.memory.receives.posted = 1;
  pair.b.stream.offer_receive();
  pair.b.send_pending();
  pair.exchange();
  CHECK(pair.a.memory.ready == 1);
  pair.a.stream.resume();
  pair.a.send_pending();
  pair.a.send(pattern(250, 4));
  pair.a.write(pattern(10, 7), 50);
  pair.exchange();
  CHECK(pair.b.memory.messages == std::vector<uint64_t>{250});
  CHECK(pair.b.memory.region.bytes[51] != std::byte{0});
  CHECK(pair.a.memory.executed.back() == 3);
}

TEST("a message cut short by a restart is dropped, and both ends skip its number") {
  Pair pair(true, true, 100);
  pair.b.memory.receives.posted = 0;
  pair.a.stream.count_request();
  const Bytes part = pattern(100);
  pair.a.stream.begin_send(pair.a.segment, 0, false, false, nullptr);
  pair.a.segment.add_piece(part.data(), part.size());
  pair.a.stream.seal(pair.a.segment);
  pair.a.push();
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{0});
  pair.b.memory.receives.posted = 1;
  pair.a.stream.rewind(0);
  pair.a.stream.resume();
  pair.a.send_pending();
  pair.a.send(pattern(30));
  pair.exchange();
  CHECK(pair.b.memory.messages == std::vector<uint64_t>{30} && !pair.b.stream.fault());
}

TEST("a message without a receive ends a plain iWARP stream") {
  Pair pair(false);
  pair.b.memory.receives.posted = 0;
  pair.a.send(pattern(5));
  pair.exchange();
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1202});
}

TEST("memory that is closed while its bytes arrive is refused and not touched") {
  Pair pair;
  pair.a.write(pattern(60'000), 0);
  const Bytes wire = std::exchange(pair.a.out, {});
  const auto half = static_cast<ptrdiff_t>(wire.size() / 2);
  CHECK(pair.b.feed(Bytes(wire.begin(), wire.begin() + half)));
  pair.b.memory.region.is_gone = true;
  pair.b.memory.region.bytes = Bytes();  // a sanitizer sees any later access
  pair.b.stream.revalidate();
  CHECK(!pair.b.feed(Bytes(wire.begin() + half, wire.end())));
  CHECK(pair.b.stream.fault()->refusal.status == Status::rem_access_err);
  CHECK(pair.b.stream.fault()->request == 1);
}

TEST("a read whose source is closed fails with its own number") {
  Pair pair;
  pair.a.read(0, 100);
  pair.a.write(pattern(8), 0);
  CHECK(pair.b.feed(std::exchange(pair.a.out, {})));
  pair.b.memory.region.is_gone = true;
  pair.b.send_pending();
  pair.exchange();
  CHECK((pair.a.memory.failures == std::vector<std::pair<uint64_t, Status>>{{1, Status::rem_access_err}}));
  CHECK(pair.a.memory.executed.back() == 2);
}

RUN_TESTS()
