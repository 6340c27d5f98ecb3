// FPDUs from arbitrary bytes: however the stream is cut, the reader returns the same segments with the same
// payload, and none after a bad checksum.
#include <optional>

#include "fuzz.h"
#include "iwarp_peer_script.h"
#include "providers/iwarp/protocol/framing.h"

using namespace verbena::iwarp;
using fuzz::Bytes;

namespace {

// What a reader returned for a stream.
struct Trace {
  std::vector<Bytes> segments;  // header, then payload
  size_t empties = 0;
  std::optional<FpduReader::Event> end;

  bool operator==(const Trace&) const = default;
};

Trace read_all(const Bytes& wire, bool crc, size_t step, uint8_t choices) {
  FpduReader reader(crc);
  Trace story;
  Bytes target, header;
  for (size_t at = 0;;) {
    const FpduReader::Event event = reader.next();
    if (event == FpduReader::Event::more) {
      if (at == wire.size()) return story;
      iovec room[kMaxRoom];
      const size_t count = reader.room(room);
      size_t taken = 0;
      REQUIRE(count > 0 && room[0].iov_len > 0);
      for (size_t i = 0; i < count && taken < step; ++i) {
        const size_t n = std::min({room[i].iov_len, step - taken, wire.size() - at});
        if (n > 0) std::memcpy(room[i].iov_base, wire.data() + at, n);
        taken += n;
        at += n;
      }
      reader.arrived(taken);
    } else if (event == FpduReader::Event::header) {
      header.assign(reader.header().begin(), reader.header().end());
      REQUIRE(reader.payload_bytes() + header.size() <= kMaxUlpdu);
      target.assign(reader.payload_bytes(), std::byte{0xee});
      // The segment's kind decides, so that every reader of this stream decides alike.
      const unsigned choice = (choices >> (std::to_integer<unsigned>(header[1]) & 3) * 2) & 3;
      const size_t third = target.size() / 3;
      const iovec pieces[] = {{target.data(), third}, {target.data() + third, target.size() - third}};
      if (choice == 0) reader.discard();
      if (choice == 1) reader.keep();
      if (choice >= 2) reader.place(pieces);
    } else if (event == FpduReader::Event::end) {
      const auto kept = reader.kept();
      REQUIRE(kept.size() <= kMaxControlBytes);
      if (!kept.empty()) target.assign(kept.begin(), kept.end());
      header.insert(header.end(), target.begin(), target.end());
      story.segments.push_back(header);
    } else if (event == FpduReader::Event::empty) {
      ++story.empties;
    } else {
      story.end = event;
      return story;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const bool crc = input.byte() & 1;
  const uint8_t choices = input.byte();
  const size_t step = size_t{input.byte()} * 8 + 2;
  fuzz::PeerScript peer(crc, {.stag = 0xabcd, .base = 0, .size = 65536});
  Bytes wire;
  while (!input.empty() && wire.size() < 300'000) {
    const Bytes more = peer.next(input.byte(), input);
    wire.insert(wire.end(), more.begin(), more.end());
  }
  const Trace in_runs = read_all(wire, crc, step, choices);
  REQUIRE(in_runs == read_all(wire, crc, wire.size() + 1, choices));
  if (wire.size() < 20'000) REQUIRE(in_runs == read_all(wire, crc, 1, choices));
  return 0;
}

SEED("placed-kept-and-discarded") {
  script.byte(1).byte(0b11'10'01'00).byte(3);
  fuzz::tagged(script, RdmapOpcode::write, true, 100, 1000);
  fuzz::message(script, RdmapOpcode::send, true, 9000);
  fuzz::control(script, RdmapOpcode::read_request).byte(1).byte(0).number(uint32_t{64}).number(uint16_t{8});
  fuzz::tagged(script, RdmapOpcode::read_response, true, 0, 40);
  script.byte(fuzz::PeerScript::fpdu).number(uint16_t{0});
}

SEED("without-checksum") {
  script.byte(0).byte(0xff).byte(100);
  for (const unsigned length : {0u, 1u, 2u, 3u, 64u, 65u, 20000u}) {
    fuzz::tagged(script, RdmapOpcode::write, true, 0, static_cast<uint16_t>(length));
  }
}

SEED("bad-checksum") {
  script.byte(1).byte(0xff).byte(0);
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 10);
  const uint8_t bad[] = {0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4};
  script.byte(fuzz::PeerScript::raw).byte(sizeof bad).add(bad, sizeof bad);
}

SEED("too-short-for-a-header") {
  script.byte(1).byte(0xff).byte(0);
  const uint8_t bad[] = {0, 13, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
  script.byte(fuzz::PeerScript::raw).byte(sizeof bad).add(bad, sizeof bad);
}
