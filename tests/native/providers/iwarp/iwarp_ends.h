// Two ends of the RDMAP state machine without a socket, over byte vectors, with a host that records its
// calls.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "iwarp_bytes.h"
#include "iwarp_host.h"

namespace ends {

using namespace verbena::iwarp;
using verbena::Status;
using namespace iwarp_bytes;

using iwarp_host::kKey;
constexpr size_t kRoom = 8;  // segments for a run

// A region under kKey at offset 0, a queue of receives, and a record of the host's calls.
struct Memory final : StreamHost {
  iwarp_host::Region region{Bytes(200'000)};
  iwarp_host::Receives receives{Bytes(200'000), 1000};
  Bytes sink = Bytes(200'000);
  std::vector<uint64_t> messages, written, executed, not_ready;
  std::vector<uint32_t> immediates;
  std::vector<std::pair<uint64_t, Status>> failures;
  std::vector<uint16_t> terminations;
  uint64_t response_bytes = 0, responses = 0, original = 0;
  int ready = 0, solicited = 0;

  Refusal place_message(uint64_t offset, uint32_t length, Placement& out) override {
    return receives.land(offset, length, out);
  }
  Refusal place_write(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override {
    return region.land(stag, offset, length, out);
  }
  Refusal place_response(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override {
    if (stag != 1 || offset != response_bytes || offset + length > sink.size()) {
      return {Status::bad_resp_err, TerminateCode::ddp_invalid_stag};
    }
    out.add(sink.data() + offset, length);
    return {};
  }
  Refusal message_arrived(uint64_t length, bool is_solicited, const uint32_t* immediate) override {
    receives.is_held = false;
    messages.push_back(length);
    solicited += is_solicited;
    if (immediate) immediates.push_back(*immediate);
    return {};
  }
  Refusal immediate_arrived(uint32_t immediate, uint64_t bytes, bool) override {
    if (const Refusal refusal = receives.take()) return refusal;
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
  Refusal read_requested(const ReadRequest& request) override {
    Refusal refusal = region.check(request.source_stag, request.source_offset, request.length);
    if (refusal) refusal.code = TerminateCode::rdmap_bounds;
    return refusal;
  }
  Refusal execute_atomic(const AtomicRequest& request, uint64_t& old) override {
    if (request.offset % 8 != 0) return {Status::rem_inv_req_err, TerminateCode::rdmap_stream};
    std::memcpy(&old, region.bytes.data() + request.offset, sizeof old);
    const uint64_t sum = old + request.add_or_swap;
    std::memcpy(region.bytes.data() + request.offset, &sum, sizeof sum);
    return {};
  }
  const std::byte* source(uint32_t, uint64_t offset, uint32_t) override {
    return region.is_gone ? nullptr : region.bytes.data() + offset;
  }
  void acknowledged(uint64_t count) override { executed.push_back(count); }
  void peer_not_ready(uint64_t count, uint8_t) override { not_ready.push_back(count); }
  void peer_ready() override { ++ready; }
  void request_failed(uint64_t request, Status status) override { failures.emplace_back(request, status); }
  void terminated(const Termination& termination) override { terminations.push_back(termination.code); }
};

inline Agreement terms(bool initiator, bool acknowledged, bool crc = true) {
  return {.initiator = initiator,
          .crc = crc,
          .acknowledged = acknowledged,
          .rtr = Rtr::write,
          .takes_runs = acknowledged};
}

// Whether markers are used from the initiator to the responder, and back.
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
    const Bytes bytes = flat(segment);
    out.insert(out.end(), bytes.begin(), bytes.end());
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
      if (const uint32_t run = stream.run_length(bytes.size() - at, kRoom)) {
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
  void send_pending() {
    while (stream.compose_control(segment)) push();
    while (stream.compose_response(segment, kRoom)) push();
    if (stream.is_ack_due()) {
      stream.compose_ack(segment);
      push();
    }
    while (stream.compose_fault_report(segment)) push();
  }
  // Feeds bytes as a socket would deliver them, `step` at a time.
  bool feed(const Bytes& bytes, size_t step = 5000) {
    size_t at = 0;
    for (; stream.expects_markers() && at < bytes.size(); at += step) {
      if (!stream.take_marked({bytes.data() + at, std::min(step, bytes.size() - at)})) return false;
    }
    while (at < bytes.size()) {
      at += iwarp_host::deliver(stream, std::span(bytes).subspan(at), step);
      if (!stream.work()) return false;
    }
    return true;
  }
};

struct Pair {
  explicit Pair(bool acknowledged = true, bool crc = true, size_t mulpdu = kMaxSegmentPayload,
                Marked marked = {})
      : a(true, acknowledged, crc, mulpdu, marked), b(false, acknowledged, crc, mulpdu, marked) {
    a.send_pending();
    exchange();
  }
  // Carries bytes both ways until neither end has output.
  void exchange() {
    while (!a.out.empty() || !b.out.empty()) {
      const Bytes from_a = std::exchange(a.out, {}), from_b = std::exchange(b.out, {});
      b.feed(from_a);
      a.feed(from_b);
      b.send_pending();
      a.send_pending();
    }
  }
  End a, b;
};

// What `a` sends for a WRITE of `bytes`, with its announcement.
inline Bytes announced_write(Pair& pair, const Bytes& bytes, uint64_t offset = 0) {
  pair.a.write(bytes, offset);
  return std::exchange(pair.a.out, {});
}

// Sends only the announcement; the test composes what follows.
inline void announce(Pair& pair, uint32_t bytes) {
  pair.a.stream.compose_run(pair.a.segment, bytes);
  pair.a.push();
}

}  // namespace ends
