// A hostile peer of the RDMAP state machine: invalid segments, one at a time.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "iwarp_ends.h"

using namespace ends;

namespace {

// How the responder answers one forged untagged segment.
TerminateCode verdict(RdmapOpcode opcode, Queue queue, uint32_t message, uint32_t offset, size_t bytes,
                      bool last = true, bool acknowledged = true) {
  End b(false, acknowledged, true), a(true, acknowledged, true);
  a.send_pending();
  b.feed(a.out);
  a.out.clear();
  a.segment.begin_untagged(opcode, last, queue, message, offset);
  const Bytes payload(bytes);
  a.segment.add_piece(payload.data(), payload.size());
  a.segment.seal(true);
  a.push();
  CHECK(!b.feed(a.out));
  return b.stream.fault() ? b.stream.fault()->refusal.code : TerminateCode{};
}

}  // namespace

TEST("a peer that breaks its run is disconnected, and nothing is placed beyond it") {
  const Bytes bytes = pattern(1000);
  const auto is_cut_off = [](auto send_forged) {
    Pair pair(true, true, 1000);
    announce(pair, 5000);
    send_forged(pair.a);
    const bool continues_run = pair.b.feed(std::exchange(pair.a.out, {}), 100'000);
    CHECK(std::all_of(pair.b.memory.region.bytes.begin() + 5000, pair.b.memory.region.bytes.end(),
                      [](std::byte byte) { return byte == std::byte{0}; }));
    return !continues_run && pair.b.stream.fault() && pair.b.stream.fault()->own == Status::bad_resp_err;
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

TEST("of a run that leaves its region, the first bad segment is refused, and earlier ones are placed") {
  Pair pair(true, true, 1000);
  const Bytes bytes = pattern(10'000);
  const uint64_t offset = pair.b.memory.region.bytes.size() - 4500;
  CHECK(!pair.b.feed(announced_write(pair, bytes, offset), 100'000));
  CHECK(pair.b.stream.fault()->refusal.code == TerminateCode::ddp_bounds);
  CHECK(pair.b.stream.fault()->refusal.status == Status::rem_access_err);
  CHECK(std::equal(bytes.begin(), bytes.begin() + 4000, pair.b.memory.region.bytes.data() + offset));
  CHECK(pair.b.memory.region.bytes[offset + 4000] == std::byte{0});
}

TEST("a wrong marker ends the stream with its own code, a bad checksum with the usual one") {
  constexpr size_t kRtrBytes = 24;  // a marker and a zero-length WRITE
  for (const bool lies : {true, false}) {
    Pair pair(true, !lies, kMaxSegmentPayload, {true, true});
    pair.a.write(pattern(3000), 0);
    pair.a.out[lies ? 512 - kRtrBytes + 3 : 600] ^= std::byte{4};
    pair.exchange();
    CHECK(pair.a.memory.terminations == std::vector<uint16_t>{lies ? uint16_t{0x2003} : uint16_t{0x2002}});
    CHECK(pair.b.memory.region.bytes == Bytes(200'000));
  }
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

TEST("acknowledgements of requests that were not sent, or of unknown kind, end the stream") {
  const auto forged = [](AckBody body) {
    Pair pair;
    pair.a.write(pattern(4), 0);
    pair.b.segment.begin_untagged(RdmapOpcode::acknowledgement, true, Queue::verbena, 1, 0);
    pair.b.segment.append(&body, sizeof body);
    pair.b.stream.seal(pair.b.segment);
    pair.b.push();
    CHECK(!pair.a.feed(pair.b.out));
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
  a.send_pending();
  for (int i = 0; i < 5; ++i) a.read(0, 10);
  CHECK(!b.feed(a.out));
  CHECK(b.stream.fault()->refusal.code == TerminateCode::rdmap_stream);
}

TEST("other versions of DDP and RDMAP are refused") {
  for (const auto& [at, mask, code] :
       {std::tuple{0, 0x02, TerminateCode::ddp_untagged_version}, {1, 0x80, TerminateCode::rdmap_version}}) {
    End a(true, true, false), b(false, true, false);
    a.send(pattern(4));
    a.out[static_cast<size_t>(2 + at)] ^= static_cast<std::byte>(mask);
    CHECK(!b.feed(a.out));
    CHECK(b.stream.fault()->refusal.code == code);
  }
}

TEST("random bytes cause no invalid memory access") {
  uint64_t state = 88172645463325252ull;
  const auto random = [&state] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  };
  for (int round = 0; round < 300; ++round) {
    End b(false, round % 2 == 0, false);
    Bytes noise(500);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    noise[0] = std::byte{0};  // short segments pass more checks
    noise[1] = static_cast<std::byte>(random() % 80);
    noise[2] = static_cast<std::byte>((random() % 4 << 6) | 1);
    noise[3] = static_cast<std::byte>(0x40 | random() % 16);
    b.feed(noise, 1 + random() % 60);
    b.send_pending();
  }
}

RUN_TESTS()
