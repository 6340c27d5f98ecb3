// The RDMAP state machine without a socket: two ends over byte vectors, and hostile segments one at a time.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "check.h"
#include "providers/iwarp/stream.h"

using namespace verbena::iwarp;
using verbena::Status;
using Bytes = std::vector<std::byte>;

namespace {

constexpr uint32_t kKey = 0xabcd;
constexpr size_t kRoom = 8;  // segments for a run

Bytes pattern(size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

// A region under kKey at offset 0, a queue of receives, and a diary of what was told.
struct Memory final : StreamHost {
  Bytes region = Bytes(200'000), inbox = Bytes(200'000), sink = Bytes(200'000);
  int receives = 1000;
  bool holds_receive = false, region_is_gone = false;
  std::vector<uint64_t> messages, written, executed, not_ready;
  std::vector<uint32_t> immediates;
  std::vector<std::pair<uint64_t, Status>> failures;
  std::vector<uint16_t> terminations;
  uint64_t response_bytes = 0, responses = 0, original = 0;
  int ready = 0, solicited = 0;

  Refusal land_message(uint64_t offset, uint32_t length, Landing& out) override {
    if (offset == 0 && !holds_receive) {
      if (receives == 0) return {.not_ready = true};
      --receives;
      holds_receive = true;
    }
    if (offset + length > inbox.size()) return {Status::rem_inv_req_err, TerminateCode::ddp_too_long};
    out.add(inbox.data() + offset, length);
    return {};
  }
  Refusal land_write(uint32_t stag, uint64_t offset, uint32_t length, Landing& out) override {
    if (stag != kKey || region_is_gone) return {Status::rem_access_err, TerminateCode::ddp_invalid_stag};
    if (offset > region.size() || length > region.size() - offset) {
      return {Status::rem_access_err, TerminateCode::ddp_bounds};
    }
    out.add(region.data() + offset, length);
    return {};
  }
  Refusal land_response(uint32_t stag, uint64_t offset, uint32_t length, Landing& out) override {
    if (stag != 1 || offset != response_bytes || offset + length > sink.size()) {
      return {Status::bad_resp_err, TerminateCode::ddp_invalid_stag};
    }
    out.add(sink.data() + offset, length);
    return {};
  }
  Refusal message_arrived(uint64_t length, bool is_solicited, const uint32_t* immediate) override {
    holds_receive = false;
    messages.push_back(length);
    solicited += is_solicited;
    if (immediate) immediates.push_back(*immediate);
    return {};
  }
  Refusal immediate_arrived(uint32_t immediate, uint64_t bytes, bool) override {
    if (receives == 0 && !holds_receive) return {.not_ready = true};
    if (!holds_receive) --receives;
    holds_receive = false;
    immediates.push_back(immediate);
    written.push_back(bytes);
    return {};
  }
  Refusal response_arrived(uint32_t length, bool last) override {
    response_bytes += length;
    responses += last;
    return {};
  }
  Refusal atomic_answered(uint32_t, uint64_t value) override {
    original = value;
    ++responses;
    return {};
  }
  Refusal read_ordered(const ReadOrder& order) override {
    Landing unused;
    Refusal refusal = land_write(order.source_stag, order.source_offset, order.length, unused);
    if (refusal) refusal.code = TerminateCode::rdmap_bounds;
    return refusal;
  }
  Refusal execute_atomic(const AtomicOrder& order, uint64_t& old) override {
    if (order.offset % 8 != 0) return {Status::rem_inv_req_err, TerminateCode::rdmap_stream};
    std::memcpy(&old, region.data() + order.offset, sizeof old);
    const uint64_t sum = old + order.add_or_swap;
    std::memcpy(region.data() + order.offset, &sum, sizeof sum);
    return {};
  }
  const std::byte* source(uint32_t, uint64_t offset, uint32_t) override {
    return region_is_gone ? nullptr : region.data() + offset;
  }
  void acknowledged(uint64_t count) override { executed.push_back(count); }
  void peer_not_ready(uint64_t count, uint8_t) override { not_ready.push_back(count); }
  void peer_ready() override { ++ready; }
  void request_failed(uint64_t request, Status status) override { failures.emplace_back(request, status); }
  void terminated(const Termination& termination) override { terminations.push_back(termination.code); }
};

Agreement terms(bool initiator, bool acknowledged, bool crc = true) {
  return {.initiator = initiator,
          .crc = crc,
          .acknowledged = acknowledged,
          .rtr = Rtr::write,
          .takes_runs = acknowledged};
}

// Markers from the initiator to the responder, and the other way.
struct Marked {
  bool there = false, back = false;

  Agreement of(Agreement agreement) const {
    agreement.sends_markers = agreement.initiator ? there : back;
    agreement.expects_markers = agreement.initiator ? back : there;
    return agreement;
  }
};

struct End {
  End(bool initiator, bool acknowledged, bool crc, size_t mulpdu = kMaxSegmentPayload, Marked marked = {})
      : stream(marked.of(terms(initiator, acknowledged, crc)), 4, mulpdu, 12, memory) {}
  Memory memory;
  Stream stream;
  OutSegment segment;
  Bytes out;

  void push() {
    iovec pieces[kMaxPieces + 2];
    const size_t count = segment.gather(0, pieces);
    for (size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
      out.insert(out.end(), from, from + pieces[i].iov_len);
    }
  }
  void send(const Bytes& bytes, const uint32_t* immediate = nullptr, bool solicited = false) {
    stream.count_request();
    size_t at = 0;
    do {
      const size_t n = std::min(bytes.size() - at, stream.mulpdu());
      stream.begin_send(segment, at, at + n == bytes.size(), solicited, immediate);
      segment.add_piece(bytes.data() + at, n);
      stream.seal(segment);
      push();
      at += n;
    } while (at < bytes.size());
  }
  void write(const Bytes& bytes, uint64_t offset, uint32_t key = kKey) {
    stream.count_request();
    size_t at = 0;
    do {
      if (const uint32_t run = stream.run_within(bytes.size() - at, kRoom)) {
        stream.compose_run(segment, run);
        push();
      }
      const size_t n = std::min(bytes.size() - at, stream.mulpdu());
      stream.begin_write(segment, key, offset + at, static_cast<uint32_t>(n), at + n == bytes.size());
      segment.add_piece(bytes.data() + at, n);
      stream.seal(segment);
      push();
      at += n;
    } while (at < bytes.size());
  }
  void read(uint64_t offset, uint32_t length, uint32_t key = kKey) {
    stream.count_request();
    stream.compose_read(segment, {1, 0, length, key, offset});
    push();
  }
  void talk() {
    while (stream.compose_control(segment)) push();
    while (stream.compose_response(segment, kRoom)) push();
    if (stream.is_ack_due()) {
      stream.compose_ack(segment);
      push();
    }
    while (stream.compose_last_words(segment)) push();
  }
  // Takes bytes as a socket would give them, in runs of `step`.
  bool hear(const Bytes& bytes, size_t step = 5000) {
    size_t at = 0;
    for (; stream.expects_markers() && at < bytes.size(); at += step) {
      if (!stream.take_marked({bytes.data() + at, std::min(step, bytes.size() - at)})) return false;
    }
    while (at < bytes.size()) {
      iovec room[kMaxRoom];
      const size_t count = stream.reader().room(room);
      size_t taken = 0;
      for (size_t i = 0; i < count && taken < step && at < bytes.size(); ++i) {
        const size_t n = std::min({room[i].iov_len, step - taken, bytes.size() - at});
        std::memcpy(room[i].iov_base, bytes.data() + at, n);
        taken += n;
        at += n;
      }
      stream.reader().arrived(taken);
      if (!stream.work()) return false;
    }
    return true;
  }
};

struct Pair {
  explicit Pair(bool acknowledged = true, bool crc = true, size_t mulpdu = kMaxSegmentPayload,
                Marked marked = {})
      : a(true, acknowledged, crc, mulpdu, marked), b(false, acknowledged, crc, mulpdu, marked) {
    a.talk();
    exchange();
  }
  // Carries bytes both ways until nobody has more to say.
  void exchange() {
    while (!a.out.empty() || !b.out.empty()) {
      const Bytes from_a = std::exchange(a.out, {}), from_b = std::exchange(b.out, {});
      b.hear(from_a);
      a.hear(from_b);
      b.talk();
      a.talk();
    }
  }
  End a, b;
};

}  // namespace

TEST("the initiator's greeting opens the responder's way and counts as nothing") {
  End a(true, true, true), b(false, true, true);
  CHECK(a.stream.may_send() && !b.stream.may_send());
  a.talk();
  CHECK(b.hear(a.out));
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
      CHECK(std::equal(bytes.begin(), bytes.end(), target.inbox.begin()));
      CHECK(std::equal(bytes.begin(), bytes.end(), target.region.begin() + 8));
      CHECK(pair.a.memory.executed.back() == 2);
    }
  }
}

// What `a` puts on the wire for a WRITE of `bytes`, announced.
Bytes announced_write(Pair& pair, const Bytes& bytes, uint64_t offset = 0) {
  pair.a.write(bytes, offset);
  return std::exchange(pair.a.out, {});
}

// The same with the announcement alone at hand: what follows is the test's.
void announce(Pair& pair, uint32_t bytes) {
  pair.a.stream.compose_run(pair.a.segment, bytes);
  pair.a.push();
}

TEST("a run lands whole, however the stream is cut") {
  for (const bool crc : {true, false}) {
    for (const size_t mulpdu : {100ul, 4096ul, kMaxSegmentPayload}) {
      for (const size_t step : {1ul, 89ul, 5000ul, 1000000ul}) {
        const size_t length = std::min<size_t>(mulpdu * 11 + 17, 190'000);
        if (length / step > 100'000) continue;
        Pair pair(true, crc, mulpdu);
        const Bytes bytes = pattern(length);
        CHECK(pair.b.hear(announced_write(pair, bytes, 8), step));
        CHECK(std::equal(bytes.begin(), bytes.end(), pair.b.memory.region.begin() + 8));
        CHECK(pair.b.memory.region[8 + length] == std::byte{0} && pair.b.stream.coming() == 0);
        pair.b.memory.region = pattern(200'000, 5);
        pair.a.read(100, static_cast<uint32_t>(length));
        CHECK(pair.b.hear(std::exchange(pair.a.out, {}), step));
        pair.b.talk();
        CHECK(pair.a.hear(std::exchange(pair.b.out, {}), step));
        CHECK(pair.a.memory.responses == 1 && pair.a.memory.response_bytes == length);
        CHECK(std::memcmp(pair.a.memory.sink.data(), pair.b.memory.region.data() + 100, length) == 0);
      }
    }
  }
}

TEST("a run that was announced is counted down") {
  Pair pair(true, true, 1000);
  const Bytes wire = announced_write(pair, pattern(6000));
  const size_t segment = 2 + 14 + 1000 + 4, word = wire.size() - 6 * segment;
  CHECK(pair.b.hear({wire.begin(), wire.begin() + word}));
  CHECK(pair.b.stream.coming() == 6000 && pair.a.memory.executed.empty());
  CHECK(pair.b.hear({wire.begin() + word, wire.end() - segment - 1}));
  CHECK(pair.b.stream.coming() == 2000);
  CHECK(pair.b.hear({wire.end() - segment - 1, wire.end()}));
  CHECK(pair.b.stream.coming() == 0);
}

TEST("a peer that breaks its run is cut off, and nothing lands beyond it") {
  const Bytes bytes = pattern(1000);
  const auto is_cut_off = [](auto says) {
    Pair pair(true, true, 1000);
    announce(pair, 5000);
    says(pair.a);
    const bool goes_on = pair.b.hear(std::exchange(pair.a.out, {}), 100'000);
    CHECK(std::all_of(pair.b.memory.region.begin() + 5000, pair.b.memory.region.end(),
                      [](std::byte byte) { return byte == std::byte{0}; }));
    return !goes_on && pair.b.stream.fault() && pair.b.stream.fault()->own == Status::bad_resp_err;
  };
  const auto segment = [&bytes](End& end, uint64_t offset, size_t length, bool last, uint32_t key = kKey) {
    end.stream.begin_write(end.segment, key, offset, static_cast<uint32_t>(length), last);
    end.segment.add_piece(bytes.data(), length);
    end.stream.seal(end.segment);
    end.push();
  };
  CHECK(!is_cut_off([&](End& end) {  // as announced
    for (size_t i = 0; i < 5; ++i) segment(end, i * 1000, 1000, i == 4);
  }));
  CHECK(is_cut_off([&](End& end) {
    end.stream.compose_ack(end.segment);
    end.push();
  }));
  CHECK(is_cut_off([&](End& end) {  // an acknowledgement in the middle
    segment(end, 0, 1000, false);
    end.stream.compose_ack(end.segment);
    end.push();
    segment(end, 1000, 1000, false);
  }));
  CHECK(is_cut_off([&](End& end) {  // a second announcement
    segment(end, 0, 1000, false);
    end.stream.compose_run(end.segment, 4000);
    end.push();
  }));
  CHECK(is_cut_off([&](End& end) {
    segment(end, 0, 1000, false);
    segment(end, 2000, 1000, false);
  }));
  CHECK(is_cut_off([&](End& end) {
    segment(end, 0, 1000, false);
    segment(end, 1000, 1000, false, kKey + 1);
  }));
  CHECK(is_cut_off([&](End& end) {
    segment(end, 0, 1000, false);
    segment(end, 1000, 999, false);
  }));
  CHECK(is_cut_off([&](End& end) {
    segment(end, 0, 1000, false);
    segment(end, 1000, 1000, true);
  }));
  CHECK(is_cut_off([&](End& end) { segment(end, 0, 0, false); }));
}

TEST("of a run that leaves its region, the segment at fault is refused, and those before it have landed") {
  Pair pair(true, true, 1000);
  const Bytes bytes = pattern(10'000);
  const uint64_t offset = pair.b.memory.region.size() - 4500;
  CHECK(!pair.b.hear(announced_write(pair, bytes, offset), 100'000));
  CHECK(pair.b.stream.fault()->refusal.code == TerminateCode::ddp_bounds);
  CHECK(pair.b.stream.fault()->refusal.status == Status::rem_access_err);
  CHECK(std::equal(bytes.begin(), bytes.begin() + 4000, pair.b.memory.region.begin() + offset));
  CHECK(pair.b.memory.region[offset + 4000] == std::byte{0});
}

TEST("a region that goes during a run gets no more of it") {
  Pair pair(true, true, 1000);
  const Bytes wire = announced_write(pair, pattern(6000));
  CHECK(pair.b.hear({wire.begin(), wire.begin() + 2500}, 100'000));
  pair.b.memory.region_is_gone = true;
  pair.b.stream.revalidate();
  const Bytes before = pair.b.memory.region;
  CHECK(!pair.b.hear({wire.begin() + 2500, wire.end()}, 100'000));
  CHECK(pair.b.memory.region == before && pair.b.stream.fault()->refusal.status == Status::rem_access_err);
}

TEST("a run behind a message that found no receive is dropped with it") {
  Pair pair(true, true, 1000);
  pair.b.memory.receives = 0;
  pair.a.send(pattern(10));
  pair.a.write(pattern(6000), 0);
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{0} && !pair.b.stream.fault());
  CHECK(pair.b.stream.coming() == 0 && pair.b.memory.region[0] == std::byte{0});
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
    pair.b.memory.region = pattern(200'000, 5);
    pair.a.read(100, 150'000);
    pair.exchange();
    CHECK(pair.a.memory.responses == 1 && pair.a.memory.response_bytes == 150'000);
    CHECK(std::memcmp(pair.a.memory.sink.data(), pair.b.memory.region.data() + 100, 150'000) == 0);
    pair.b.memory.region.assign(64, std::byte{0});
    pair.a.stream.compose_atomic(pair.a.segment, {.id = 4, .stag = kKey, .offset = 8, .add_or_swap = 41});
    pair.a.stream.count_request();
    pair.a.push();
    pair.exchange();
    CHECK(pair.a.memory.responses == 2 && pair.a.memory.original == 0);
    CHECK(pair.b.memory.region[8] == std::byte{41});
  }
}

TEST("with markers, one way or both, it is the same conversation") {
  for (const Marked marked : {Marked{true, false}, Marked{false, true}, Marked{true, true}}) {
    for (const bool crc : {true, false}) {
      Pair pair(true, crc, kMaxSegmentPayload, marked);
      const Bytes bytes = pattern(150'000);
      pair.a.send(bytes);
      pair.a.write(bytes, 8);
      pair.a.read(8, 150'000);
      pair.exchange();
      CHECK(pair.b.memory.messages == std::vector<uint64_t>{150'000});
      CHECK(std::equal(bytes.begin(), bytes.end(), pair.b.memory.inbox.begin()));
      CHECK(pair.a.memory.responses == 1 && pair.a.memory.executed.back() == 3);
      CHECK(std::equal(bytes.begin(), bytes.end(), pair.a.memory.sink.begin()));
      CHECK(!pair.a.stream.in_segment() && !pair.b.stream.in_segment());
      pair.a.write(pattern(1000, 3), 0);
      const Bytes part(pair.a.out.begin(), pair.a.out.begin() + 600);
      pair.a.out.erase(pair.a.out.begin(), pair.a.out.begin() + 600);
      CHECK(pair.b.hear(part) && pair.b.stream.in_segment());  // as the watch for dribblers sees it
      pair.exchange();
      CHECK(!pair.b.stream.in_segment() && pair.a.memory.executed.back() == 4);
      pair.a.write(pattern(8), 0, kKey + 1);
      pair.exchange();
      CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1100});
    }
  }
}

TEST("a marker that lies ends the stream with its own code, a bad checksum with that of any stream") {
  constexpr size_t kGreeting = 24;  // a marker, and a WRITE of nothing
  for (const bool lies : {true, false}) {
    Pair pair(true, !lies, kMaxSegmentPayload, {true, true});
    pair.a.write(pattern(3000), 0);
    pair.a.out[lies ? 512 - kGreeting + 3 : 600] ^= std::byte{4};
    pair.exchange();
    CHECK(pair.a.memory.terminations == std::vector<uint16_t>{lies ? uint16_t{0x2003} : uint16_t{0x2002}});
    CHECK(pair.b.memory.region == Bytes(200'000));
  }
}

TEST("a refused write fails the request that caused it, and only then the stream ends") {
  Pair pair;
  pair.b.memory.region = pattern(1000, 3);
  pair.a.read(0, 100);
  pair.a.write(pattern(8), 0, kKey + 1);
  pair.a.write(pattern(8, 9), 16);
  pair.exchange();
  CHECK(pair.a.memory.responses == 1);
  CHECK((pair.a.memory.failures == std::vector<std::pair<uint64_t, Status>>{{2, Status::rem_access_err}}));
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1100});
  CHECK(pair.b.memory.region == pattern(1000, 3));
}

TEST("towards a foreign end only the TERMINATE tells, and nothing is acknowledged") {
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
  pair.b.memory.receives = 0;
  pair.a.write(pattern(10), 0);
  pair.a.send(pattern(250));
  pair.a.write(pattern(10, 7), 50);
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{1});
  CHECK(pair.b.memory.region[51] == std::byte{0} && pair.b.memory.region[1] != std::byte{0});
  pair.a.stream.rewind(1);
  pair.b.memory.receives = 1;
  pair.b.stream.offer_receive();
  pair.b.talk();
  pair.exchange();
  CHECK(pair.a.memory.ready == 1);
  pair.a.stream.resume();
  pair.a.talk();
  pair.a.send(pattern(250, 4));
  pair.a.write(pattern(10, 7), 50);
  pair.exchange();
  CHECK(pair.b.memory.messages == std::vector<uint64_t>{250});
  CHECK(pair.b.memory.region[51] != std::byte{0});
  CHECK(pair.a.memory.executed.back() == 3);
}

TEST("a message cut short by a restart is forgotten, and its number is used up on both sides") {
  Pair pair(true, true, 100);
  pair.b.memory.receives = 0;
  pair.a.stream.count_request();
  const Bytes part = pattern(100);
  pair.a.stream.begin_send(pair.a.segment, 0, false, false, nullptr);
  pair.a.segment.add_piece(part.data(), part.size());
  pair.a.stream.seal(pair.a.segment);
  pair.a.push();
  pair.exchange();
  CHECK(pair.a.memory.not_ready == std::vector<uint64_t>{0});
  pair.b.memory.receives = 1;
  pair.a.stream.rewind(0);
  pair.a.stream.resume();
  pair.a.talk();
  pair.a.send(pattern(30));
  pair.exchange();
  CHECK(pair.b.memory.messages == std::vector<uint64_t>{30} && !pair.b.stream.fault());
}

TEST("a message without a receive ends a plain iWARP stream") {
  Pair pair(false);
  pair.b.memory.receives = 0;
  pair.a.send(pattern(5));
  pair.exchange();
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x1202});
}

TEST("a corrupt stream delivers nothing and names no request") {
  Pair pair;
  pair.a.send(pattern(3000));
  pair.a.out[1500] ^= std::byte{1};
  pair.exchange();
  CHECK(pair.b.memory.messages.empty() && pair.b.stream.fault());
  CHECK(pair.b.stream.fault()->own == Status::retry_exc_err);
  CHECK(pair.a.memory.failures.empty());
  CHECK(pair.a.memory.terminations == std::vector<uint16_t>{0x2002});
}

TEST("memory that goes away while its bytes come in is refused, and not touched") {
  Pair pair;
  pair.a.write(pattern(60'000), 0);
  const Bytes wire = std::exchange(pair.a.out, {});
  const auto half = static_cast<ptrdiff_t>(wire.size() / 2);
  CHECK(pair.b.hear(Bytes(wire.begin(), wire.begin() + half)));
  pair.b.memory.region_is_gone = true;
  pair.b.memory.region = Bytes();  // a sanitizer sees any later access
  pair.b.stream.revalidate();
  CHECK(!pair.b.hear(Bytes(wire.begin() + half, wire.end())));
  CHECK(pair.b.stream.fault()->refusal.status == Status::rem_access_err);
  CHECK(pair.b.stream.fault()->request == 1);
}

TEST("a read whose source goes away fails by its own number") {
  Pair pair;
  pair.a.read(0, 100);
  pair.a.write(pattern(8), 0);
  CHECK(pair.b.hear(std::exchange(pair.a.out, {})));
  pair.b.memory.region_is_gone = true;
  pair.b.talk();
  pair.exchange();
  CHECK((pair.a.memory.failures == std::vector<std::pair<uint64_t, Status>>{{1, Status::rem_access_err}}));
  CHECK(pair.a.memory.executed.back() == 2);
}

namespace {

// What the responder makes of one forged untagged segment.
TerminateCode verdict(RdmapOpcode opcode, Queue queue, uint32_t message, uint32_t offset, size_t bytes,
                      bool last = true, bool acknowledged = true) {
  End b(false, acknowledged, true), a(true, acknowledged, true);
  a.talk();
  b.hear(a.out);
  a.out.clear();
  a.segment.begin_untagged(opcode, last, queue, message, offset);
  const Bytes payload(bytes);
  a.segment.add_piece(payload.data(), payload.size());
  a.segment.seal(true);
  a.push();
  CHECK(!b.hear(a.out));
  return b.stream.fault() ? b.stream.fault()->refusal.code : TerminateCode{};
}

}  // namespace

TEST("message numbers of the past, the future and twice are refused on every queue") {
  const struct {
    RdmapOpcode opcode;
    Queue queue;
    size_t bytes;
  } forms[] = {{RdmapOpcode::send, Queue::send, 10},
               {RdmapOpcode::immediate, Queue::send, 8},
               {RdmapOpcode::read_request, Queue::read_request, 28},
               {RdmapOpcode::atomic_request, Queue::read_request, 52},
               {RdmapOpcode::atomic_response, Queue::atomic_response, 12},
               {RdmapOpcode::terminate, Queue::terminate, 4},
               {RdmapOpcode::acknowledgement, Queue::verbena, 12}};
  for (const auto& form : forms) {
    for (const uint32_t number : {0u, 2u, 0xffffffffu}) {
      CHECK(verdict(form.opcode, form.queue, number, 0, form.bytes) == TerminateCode::ddp_message_number);
    }
    CHECK(verdict(form.opcode, form.queue, 1, 4, form.bytes) == TerminateCode::ddp_message_offset);
    CHECK(verdict(form.opcode, Queue{4711}, 1, 0, form.bytes) == TerminateCode::ddp_invalid_queue);
    const Queue other = form.queue == Queue::terminate ? Queue::send : Queue::terminate;
    CHECK(verdict(form.opcode, other, 1, 0, form.bytes) == TerminateCode::rdmap_opcode);
    if (form.opcode == RdmapOpcode::send) continue;
    CHECK(verdict(form.opcode, form.queue, 1, 0, 600) == TerminateCode::ddp_too_long);
    CHECK(verdict(form.opcode, form.queue, 1, 0, form.bytes, false) == TerminateCode::ddp_too_long);
    CHECK(verdict(form.opcode, form.queue, 1, 0, form.bytes - 1) == TerminateCode::rdmap_stream);
  }
  CHECK(verdict(RdmapOpcode{0xc}, Queue::send, 1, 0, 0) == TerminateCode::rdmap_opcode);
  CHECK(verdict(RdmapOpcode::acknowledgement, Queue::verbena, 1, 0, 12, true, false) ==
        TerminateCode::ddp_invalid_queue);
}

TEST("acknowledgements beyond what was asked, or of unknown kind, end the stream") {
  const auto forged = [](AckBody body) {
    Pair pair;
    pair.a.write(pattern(4), 0);
    pair.b.segment.begin_untagged(RdmapOpcode::acknowledgement, true, Queue::verbena, 1, 0);
    pair.b.segment.append(&body, sizeof body);
    pair.b.stream.seal(pair.b.segment);
    pair.b.push();
    CHECK(!pair.a.hear(pair.b.out));
    return pair.a.stream.fault()->own;
  };
  CHECK(forged({.kind = 0, .executed = 2}) == Status::bad_resp_err);
  CHECK(forged({.kind = 0, .executed = 0xffffffff}) == Status::bad_resp_err);
  CHECK(forged({.kind = 1, .executed = 1}) == Status::bad_resp_err);
  CHECK(forged({.kind = 4, .status = 0, .executed = 0, .failed = 1}) == Status::bad_resp_err);
  CHECK(forged({.kind = 4, .status = 200, .executed = 0, .failed = 1}) == Status::bad_resp_err);
  CHECK(forged({.kind = 4, .status = 10, .executed = 0, .failed = 2}) == Status::bad_resp_err);
  CHECK(forged({.kind = 77}) == Status::bad_resp_err);
}

TEST("more reads at once than were agreed on end the stream") {
  End a(true, true, true), b(false, true, true);
  a.talk();
  for (int i = 0; i < 5; ++i) a.read(0, 10);
  CHECK(!b.hear(a.out));
  CHECK(b.stream.fault()->refusal.code == TerminateCode::rdmap_stream);
}

TEST("other versions of DDP and RDMAP are refused") {
  for (const auto& [at, mask, code] :
       {std::tuple{0, 0x02, TerminateCode::ddp_untagged_version}, {1, 0x80, TerminateCode::rdmap_version}}) {
    End a(true, true, false), b(false, true, false);
    a.send(pattern(4));
    a.out[static_cast<size_t>(2 + at)] ^= static_cast<std::byte>(mask);
    CHECK(!b.hear(a.out));
    CHECK(b.stream.fault()->refusal.code == code);
  }
}

TEST("random bytes never do harm") {
  uint64_t state = 88172645463325252ull;
  const auto random = [&state] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  };
  for (int round = 0; round < 300; ++round) {
    End b(false, round % 2 == 0, false);
    Bytes noise(500);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    noise[0] = std::byte{0};  // short segments get further
    noise[1] = static_cast<std::byte>(random() % 80);
    noise[2] = static_cast<std::byte>((random() % 4 << 6) | 1);
    noise[3] = static_cast<std::byte>(0x40 | random() % 16);
    b.hear(noise, 1 + random() % 60);
    b.talk();
  }
}

RUN_TESTS()
