// An envelope from a hostile peer: its header is accepted or refused, no byte beyond it is read, and an
// accepted one has exactly the length in its header. The reply to an accepted envelope is a valid envelope
// itself.
#include "fuzz.h"
#include "kv/migration/envelope.h"

using namespace verbena::kv;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t mode = input.byte();
  std::string data;
  if (mode & 1) {  // a valid envelope with changes from the input
    EnvelopeHeader header{};
    const auto fields = input.take(sizeof header);
    if (!fields.empty()) std::memcpy(&header, fields.data(), fields.size());
    const auto payload = input.rest();
    data = envelope::make(header, {reinterpret_cast<const char*>(payload.data()), payload.size()});
    if (mode & 2) data[(mode >> 2) % data.size()] ^= 1;
  } else {
    const auto rest = input.rest();
    data.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  }
  const auto view = std::as_bytes(std::span(data));
  EnvelopeHeader header{};
  const bool consents = envelope::is_acceptance(view);
  if (!envelope::read(view, header).empty()) {
    REQUIRE(!consents);
    return 0;
  }
  REQUIRE(data.size() == sizeof header + header.length);
  const bool has_valid_checksum = envelope::has_valid_checksum(header, view.subspan(sizeof header));
  REQUIRE(has_valid_checksum || !consents);
  REQUIRE(!(mode & 1) || has_valid_checksum == !(mode & 2));
  const std::string answer = envelope::answer(header, mode & 4, "why");
  EnvelopeHeader told{};
  REQUIRE(envelope::read(std::as_bytes(std::span(answer)), told).empty());
  REQUIRE(envelope::has_valid_checksum(told, std::as_bytes(std::span(answer)).subspan(sizeof told)));
  REQUIRE(std::memcmp(told.target, header.source, sizeof told.target) == 0);
  REQUIRE(told.segment == header.segment && told.length == 3);
  REQUIRE(((told.flags & envelope::kRefused) != 0) == ((mode & 4) != 0));
  return 0;
}

SEED("a-notice") {
  EnvelopeHeader header{};
  header.kind = EnvelopeKind::notice;
  script.byte(1).add(&header, sizeof header).add("\0\0\0\0\x70\0\0\0", 8);
}

SEED("a-consent") {
  EnvelopeHeader header{};
  header.kind = EnvelopeKind::notice;
  header.flags = envelope::kAnswer;
  script.byte(5).add(&header, sizeof header);
}

SEED("a-flipped-bit") {
  EnvelopeHeader header{};
  header.kind = EnvelopeKind::segment;
  script.byte(3 | 40 << 2).add(&header, sizeof header).add("payload", 7);
}

SEED("any-bytes") { script.byte(0).add("VSHD\1\11 and whatever else there is", 33); }
