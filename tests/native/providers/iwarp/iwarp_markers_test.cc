// Markers without a socket: their positions, pointers and CRC as in RFC 5044, their removal however the
// stream is cut, and two ends of a stream that use them.
#include <algorithm>
#include <cstring>
#include <vector>

#include "iwarp_bytes.h"
#include "providers/iwarp/protocol/markers.h"
#include "util/crc32c/crc32c.h"

using namespace verbena::iwarp;
using Event = MarkerStripper::Event;
using namespace iwarp_bytes;

namespace {

// A WRITE of `payload` as an FPDU; with markers if there is an inserter.
Bytes write_fpdu(const Bytes& payload, bool crc, MarkerInserter* markers = nullptr) {
  OutSegment segment;
  segment.begin_tagged(RdmapOpcode::write, true, 0x1234, 77);
  const size_t half = payload.size() / 3;  // in two pieces, like a scatter/gather list
  segment.add_piece(payload.data(), half);
  segment.add_piece(payload.data() + half, payload.size() - half);
  if (markers) {
    segment.seal(*markers);
  } else {
    segment.seal(crc);
  }
  return flat(segment);
}

void append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

void append_crc(Bytes& out, bool crc, const Bytes& covered) {
  const uint32_t sum = crc ? verbena::crc32c_portable(0, covered.data(), covered.size()) : 0;
  for (size_t i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(sum >> (8 * i)));
}

// A second implementation of the RFC's rules, byte by byte.
Bytes by_the_rules(const std::vector<Bytes>& fpdus, bool crc) {
  Bytes out;
  for (const Bytes& fpdu : fpdus) {
    Bytes raw;
    size_t began = SIZE_MAX;
    const auto mark = [&] {
      const size_t position = out.size() + raw.size();
      if (position % 512 != 0) return;
      const size_t pointer = began == SIZE_MAX ? 0 : position - began;
      append(raw, {std::byte{0}, std::byte{0}, static_cast<std::byte>(pointer >> 8),
                   static_cast<std::byte>(pointer)});
    };
    for (size_t i = 0; i + 4 < fpdu.size(); ++i) {
      mark();
      if (i == 0) began = out.size() + raw.size();
      raw.push_back(fpdu[i]);
    }
    mark();
    append_crc(raw, crc, Bytes(raw));
    append(out, raw);
  }
  return out;
}

// Strips a stream `step` bytes at a time; stops at the first event that is neither `more` nor `fpdu`.
Event strip(const Bytes& wire, bool crc, size_t step, std::vector<Bytes>& fpdus) {
  MarkerStripper stripper(crc);
  for (size_t at = 0; at < wire.size(); at += step) {
    std::span<const std::byte> run(wire.data() + at, std::min(step, wire.size() - at));
    for (;;) {
      const Event event = stripper.take(run);
      if (event == Event::fpdu) fpdus.emplace_back(stripper.fpdu().begin(), stripper.fpdu().end());
      if (event == Event::corrupt || event == Event::misplaced) return event;
      if (event == Event::more) break;
    }
  }
  CHECK(!stripper.in_fpdu());
  return Event::more;
}

Bytes without_crc(const Bytes& fpdu) { return {fpdu.begin(), fpdu.end() - 4}; }

}  // namespace

TEST("the first marker opens the stream, the next points back to the length field") {
  MarkerInserter markers(true);
  const Bytes plain = write_fpdu(pattern(500), true);
  CHECK(plain.size() == 520);
  Bytes expected(4);  // reserved, and zero: an FPDU begins behind it
  expected.insert(expected.end(), plain.begin(), plain.begin() + 508);
  append(expected, {std::byte{0}, std::byte{0}, std::byte{0x01}, std::byte{0xfc}});  // 508 bytes back
  expected.insert(expected.end(), plain.begin() + 508, plain.end() - 4);
  append_crc(expected, true, Bytes(expected));
  CHECK(markers.marked_bytes(plain.size()) == expected.size());
  CHECK(write_fpdu(pattern(500), true, &markers) == expected);
}

TEST("a marker between two FPDUs belongs to the second; one before the CRC is covered by it") {
  for (const bool crc : {true, false}) {
    // 4 of marker and 508 of FPDU: the next marker is at its end.
    MarkerInserter between(crc);
    const Bytes first = write_fpdu(pattern(488), crc, &between);
    CHECK(first.size() == 512);
    Bytes second = write_fpdu(pattern(1), crc, &between);
    CHECK(std::all_of(second.begin(), second.begin() + 4, [](std::byte b) { return b == std::byte{0}; }));
    Bytes covered(second.begin(), second.end() - 4), expected = covered;
    append_crc(expected, crc, covered);
    CHECK(second == expected);
    // 4 more, and it stands before the CRC.
    MarkerInserter within(crc);
    const Bytes split = write_fpdu(pattern(492), crc, &within);
    CHECK(split.size() == 520);
    CHECK(split[512] == std::byte{0} && split[513] == std::byte{0});
    CHECK(split[514] == std::byte{0x01} && split[515] == std::byte{0xfc});
    Bytes sealed(split.begin(), split.end() - 4);
    append_crc(sealed, crc, Bytes(sealed));
    CHECK(split == sealed);
  }
}

TEST("markers are at the RFC's positions, for segments of any length") {
  for (const bool crc : {true, false}) {
    std::vector<Bytes> fpdus;
    Bytes marked;
    MarkerInserter markers(crc);
    for (const size_t length : {0ul, 1ul, 2ul, 3ul, 480ul, 488ul, 492ul, 500ul, 508ul, 1000ul, 5000ul,
                                size_t{kMaxMarkedPayload}, 7ul, size_t{kMaxMarkedPayload}}) {
      const Bytes payload = pattern(length);
      fpdus.push_back(write_fpdu(payload, crc));
      const size_t expected = markers.marked_bytes(fpdus.back().size());
      const Bytes fpdu = write_fpdu(payload, crc, &markers);
      CHECK(fpdu.size() == expected);
      append(marked, fpdu);
    }
    CHECK(marked == by_the_rules(fpdus, crc));
  }
}

TEST("the payload of a READ response is copied as it is when it is sealed") {
  MarkerInserter markers(true), again(true);
  Bytes memory = pattern(3000);
  OutSegment segment;
  segment.begin_tagged(RdmapOpcode::write, true, 0x1234, 77);
  segment.add_snapshot(memory.data(), memory.size());
  segment.seal(markers);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  CHECK(flat(segment) == write_fpdu(pattern(3000), true, &again));
}

TEST("markers are taken out of a stream, wherever it is cut") {
  for (const bool crc : {true, false}) {
    std::vector<Bytes> sent;
    for (const size_t length : {3ul, 480ul, 488ul, 492ul, 5000ul, 1ul, size_t{kMaxMarkedPayload}, 0ul}) {
      sent.push_back(write_fpdu(pattern(length), crc));
    }
    const Bytes marked = by_the_rules(sent, crc);
    for (const size_t step : {1ul, 5ul, 512ul, 600ul, marked.size()}) {
      std::vector<Bytes> got;
      CHECK(strip(marked, crc, step, got) == Event::more);
      CHECK(got.size() == sent.size());
      for (size_t i = 0; i < sent.size(); ++i) CHECK(without_crc(got[i]) == without_crc(sent[i]));
    }
  }
}

TEST("a wrong marker is distinguished from a wrong checksum") {
  const Bytes marked = by_the_rules({write_fpdu(pattern(2000), true)}, true);
  std::vector<Bytes> got;
  for (const size_t at : {0ul, 100ul, 515ul, marked.size() - 1}) {
    Bytes spoiled = marked;
    spoiled[at] ^= std::byte{4};
    CHECK(strip(spoiled, true, 700, got) == Event::corrupt);
  }
  Bytes moved(marked.begin(), marked.end() - 4);
  moved[515] ^= std::byte{4};
  append_crc(moved, true, Bytes(moved));
  CHECK(strip(moved, true, 700, got) == Event::misplaced);
  Bytes unsummed = by_the_rules({write_fpdu(pattern(2000), false)}, false);
  unsummed[3] = std::byte{8};  // in the first: no FPDU has begun yet
  CHECK(strip(unsummed, false, 700, got) == Event::misplaced);
  CHECK(got.empty());
}

RUN_TESTS()
