// Markers from arbitrary bytes: however the stream is cut, the same FPDUs result, and none after a bad
// checksum or a wrong marker; and what the inserter adds, the stripper removes.
#include "fuzz.h"
#include "providers/iwarp/protocol/markers.h"

using namespace verbena::iwarp;
using fuzz::Bytes;
using Event = MarkerStripper::Event;

namespace {

// The result, and how it ended.
struct Trace {
  std::vector<Bytes> fpdus;
  Event end = Event::more;

  bool operator==(const Trace&) const = default;
};

Trace strip(const Bytes& wire, bool crc, size_t step) {
  MarkerStripper stripper(crc);
  Trace story;
  for (size_t at = 0; at < wire.size(); at += step) {
    std::span<const std::byte> run(wire.data() + at, std::min(step, wire.size() - at));
    while ((story.end = stripper.take(run)) == Event::fpdu) {
      const auto fpdu = stripper.fpdu();
      REQUIRE(fpdu.size() % kMpaAlignment == 0 && !stripper.in_fpdu());
      story.fpdus.emplace_back(fpdu.begin(), fpdu.end());
    }
    if (story.end != Event::more) return story;
    REQUIRE(run.empty());
  }
  return story;
}

// An FPDU of arbitrary content without its CRC.
Bytes unsealed(const Bytes& ulpdu) {
  Bytes out{static_cast<std::byte>(ulpdu.size() >> 8), static_cast<std::byte>(ulpdu.size())};
  out.insert(out.end(), ulpdu.begin(), ulpdu.end());
  out.resize(out.size() + pad_bytes(ulpdu.size()));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const bool crc = input.byte() & 1;
  const size_t step = size_t{input.byte()} * 4 + 1;
  MarkerInserter markers(crc);
  std::vector<Bytes> sent;
  Bytes wire;
  for (size_t count = input.byte() % 16; count > 0; --count) {
    sent.push_back(unsealed(fuzz::pattern(input.number<uint16_t>() % 64'000, input.byte())));
    const Bytes& fpdu = sent.back();
    Bytes marked(markers.marked_bytes(fpdu.size() + kMpaCrcBytes));
    const size_t cut = input.number<uint16_t>() % fpdu.size();
    const iovec pieces[] = {{const_cast<std::byte*>(fpdu.data()), cut},
                            {const_cast<std::byte*>(fpdu.data() + cut), fpdu.size() - cut}};
    markers.insert(pieces, marked.data());
    wire.insert(wire.end(), marked.begin(), marked.end());
  }
  Trace story = strip(wire, crc, step);
  REQUIRE(story.end == Event::more && story.fpdus.size() == sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    story.fpdus[i].resize(story.fpdus[i].size() - kMpaCrcBytes);
    REQUIRE(story.fpdus[i] == sent[i]);
  }
  const Bytes noise = input.rest();
  wire.insert(wire.end(), noise.begin(), noise.end());
  story = strip(wire, crc, step);
  REQUIRE(story == strip(wire, crc, wire.size() + 1));
  if (wire.size() < 20'000) REQUIRE(story == strip(wire, crc, 1));
  return 0;
}

namespace {

fuzz::Script& segment(fuzz::Script& script, uint16_t length, uint16_t cut = 0) {
  return script.number(length).byte(3).number(cut);
}

}  // namespace

SEED("between-before-and-within") {
  script.byte(1).byte(7).byte(4);
  segment(script, 502);
  segment(script, 1);
  segment(script, 994, 300);
  segment(script, 63'999);
}

SEED("without-checksum-then-a-lie") {
  script.byte(0).byte(200).byte(1);
  segment(script, 2000);
  const uint8_t lie[] = {0, 2, 1, 2, 0, 0, 0, 0};
  for (int i = 0; i < 80; ++i) script.add(lie, sizeof lie);
}

SEED("a-marker-without-an-fpdu") { script.byte(1).byte(0).byte(0).number(uint32_t{0x01000000}); }
