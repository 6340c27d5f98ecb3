// FPDUs without a socket: split anywhere, placed, kept, held back, corrupted, cut short.
#include <algorithm>
#include <cstring>
#include <vector>

#include "iwarp_bytes.h"
#include "providers/iwarp/protocol/framing.h"
#include "util/crc32c/crc32c.h"

using namespace verbena::iwarp;
using Event = FpduReader::Event;
using namespace iwarp_bytes;

namespace {

Bytes write_fpdu(const Bytes& payload, bool crc, uint64_t offset = 0) {
  static OutSegment segment;
  segment.begin_tagged(RdmapOpcode::write, true, 0x1234, offset);
  segment.add_piece(payload.data(), payload.size());
  segment.seal(crc);
  return flat(segment);
}

// Offers bytes to the reader, at most `step` at a time, as a socket would; returns the number that it took.
size_t feed(FpduReader& reader, const std::byte* bytes, size_t size, size_t step) {
  iovec room[kMaxRoom];
  const size_t count = reader.room(room);
  CHECK(count > 0);
  size_t taken = 0;
  const size_t limit = std::min(size, step);
  for (size_t i = 0; i < count && taken < limit; ++i) {
    const size_t n = std::min(room[i].iov_len, limit - taken);
    std::memcpy(room[i].iov_base, bytes + taken, n);
    taken += n;
  }
  reader.arrived(taken);
  return taken;
}

// Reads one segment into `target`; returns the event that ended it.
Event read_into(FpduReader& reader, const Bytes& wire, size_t& at, size_t step, Bytes& target) {
  for (;;) {
    switch (const Event event = reader.next(); event) {
      case Event::more:
        if (at == wire.size()) return Event::more;
        at += feed(reader, wire.data() + at, wire.size() - at, step);
        break;
      case Event::header: {
        target.assign(reader.payload_bytes(), std::byte{0xee});
        // Two pieces, so that reads cross their border.
        const size_t half = target.size() / 3;
        const iovec pieces[] = {{target.data(), half}, {target.data() + half, target.size() - half}};
        reader.place(pieces);
        break;
      }
      default:
        return event;
    }
  }
}

}  // namespace

TEST("segments arrive whole, however the stream is cut") {
  for (const bool crc : {true, false}) {
    for (const size_t length : {0ul, 1ul, 2ul, 3ul, 63ul, 64ul, 65ul, 500ul, 8191ul, 20000ul, 65408ul}) {
      Bytes wire;
      const Bytes first = pattern(length, 1), second = pattern(length, 9);
      for (const Bytes& payload : {first, second}) {
        const Bytes fpdu = write_fpdu(payload, crc);
        CHECK(fpdu.size() % 4 == 0);
        wire.insert(wire.end(), fpdu.begin(), fpdu.end());
      }
      for (const size_t step : {1ul, 3ul, 17ul, 1000ul, 100000ul}) {
        if (step == 1 && length > 9000) continue;
        FpduReader reader(crc);
        Bytes target;
        size_t at = 0;
        CHECK(read_into(reader, wire, at, step, target) == Event::end);
        CHECK(target == first);
        CHECK(read_into(reader, wire, at, step, target) == Event::end);
        CHECK(target == second);
        CHECK(at == wire.size() && !reader.in_segment());
      }
    }
  }
}

TEST("the checksum is least significant byte first and covers length, header, payload and pad") {
  const Bytes fpdu = write_fpdu(pattern(5), true);
  CHECK(fpdu.size() == 2 + 14 + 5 + 3 + 4);
  const uint32_t crc = verbena::crc32c(0, fpdu.data(), fpdu.size() - 4);
  for (size_t i = 0; i < 4; ++i) CHECK(fpdu[fpdu.size() - 4 + i] == static_cast<std::byte>(crc >> (8 * i)));
  const Bytes without = write_fpdu(pattern(5), false);
  for (size_t i = 0; i < 4; ++i) CHECK(without[without.size() - 4 + i] == std::byte{0});
}

TEST("a message's checksum follows from those of its segments") {
  const Bytes whole = pattern(65408 * 2 + 700);
  uint32_t sum = 0;
  static OutSegment segment;
  for (size_t at = 0; at < whole.size(); at += 65408) {
    const size_t n = std::min<size_t>(65408, whole.size() - at);
    segment.begin_tagged(RdmapOpcode::write, at + n == whole.size(), 0x1234, at);
    segment.add_piece(whole.data() + at, n / 3);
    segment.add_piece(whole.data() + at + n / 3, n - n / 3);
    segment.seal(true);
    sum = segment.continue_sum(sum);
  }
  CHECK(sum == verbena::crc32c(0, whole.data(), whole.size()));
}

TEST("a flipped bit anywhere is detected, and the held-back end is never placed") {
  const Bytes payload = pattern(9000);
  const Bytes good = write_fpdu(payload, true);
  for (const size_t spoiled : {20ul, 4000ul, 8950ul, good.size() - 1}) {
    Bytes wire = good;
    wire[spoiled] ^= std::byte{0x10};
    FpduReader reader(true);
    Bytes target;
    size_t at = 0;
    CHECK(read_into(reader, wire, at, 1000, target) == Event::corrupt);
    for (size_t i = target.size() - kHeldBack; i < target.size(); ++i) CHECK(target[i] == std::byte{0xee});
  }
}

TEST("a small segment with a bad checksum moves no byte") {
  Bytes wire = write_fpdu(pattern(100), true);
  wire.back() ^= std::byte{1};
  FpduReader reader(true);
  Bytes target;
  size_t at = 0;
  CHECK(read_into(reader, wire, at, 4096, target) == Event::corrupt);
  CHECK(target == Bytes(100, std::byte{0xee}));
}

TEST("a truncated segment waits for more and delivers nothing") {
  const Bytes wire = write_fpdu(pattern(300), true);
  for (size_t cut = 1; cut < wire.size(); cut += 13) {
    FpduReader reader(true);
    Bytes target, part(wire.begin(), wire.begin() + static_cast<ptrdiff_t>(cut));
    size_t at = 0;
    CHECK(read_into(reader, part, at, 100, target) == Event::more);
    CHECK(reader.in_segment());
  }
}

TEST("a length too short for its header is malformed, and zero is an RTR message") {
  for (const uint8_t length : {uint8_t{1}, uint8_t{13}, uint8_t{17}}) {
    Bytes wire(32);
    wire[1] = std::byte{length};
    wire[2] = static_cast<std::byte>(length == 17 ? 0x41 : 0xc1);
    FpduReader reader(false);
    Bytes target;
    size_t at = 0;
    CHECK(read_into(reader, wire, at, 32, target) == Event::malformed);
  }
  FpduReader reader(true);
  Bytes wire(8), target;
  const uint32_t crc = verbena::crc32c(0, wire.data(), 4);
  for (size_t i = 0; i < 4; ++i) wire[4 + i] = static_cast<std::byte>(crc >> (8 * i));
  size_t at = 0;
  CHECK(read_into(reader, wire, at, 3, target) == Event::empty);
}

TEST("payload that is kept or discarded does not disturb the next segment") {
  Bytes wire = write_fpdu(pattern(40), true);
  for (const Bytes& next : {write_fpdu(pattern(7000), true), write_fpdu(pattern(50, 3), true)}) {
    wire.insert(wire.end(), next.begin(), next.end());
  }
  FpduReader reader(true);
  size_t at = 0;
  int segment = 0;
  while (segment < 3) {
    switch (reader.next()) {
      case Event::more:
        at += feed(reader, wire.data() + at, wire.size() - at, 777);
        break;
      case Event::header:
        if (segment == 1) {
          reader.discard();
        } else {
          reader.keep();
        }
        break;
      case Event::end:
        if (segment == 0) CHECK(Bytes(reader.kept().begin(), reader.kept().end()) == pattern(40));
        if (segment == 2) CHECK(Bytes(reader.kept().begin(), reader.kept().end()) == pattern(50, 3));
        ++segment;
        break;
      default:
        CHECK(false);
    }
  }
  CHECK(at == wire.size());
}

TEST("after a placement is discarded, its memory is not touched") {
  const Bytes payload = pattern(20000), wire = write_fpdu(payload, true);
  FpduReader reader(true);
  Bytes target(payload.size());
  size_t at = 0;
  for (bool over = false; !over;) {
    switch (reader.next()) {
      case Event::more:
        if (at > 10000) {
          reader.discard();
          target.clear();
          target.shrink_to_fit();  // a sanitizer sees any later access
        }
        at += feed(reader, wire.data() + at, wire.size() - at, 3000);
        break;
      case Event::header: {
        const iovec piece{target.data(), target.size()};
        reader.place({&piece, 1});
        break;
      }
      default:
        over = true;
    }
  }
  CHECK(at == wire.size());
}

RUN_TESTS()
