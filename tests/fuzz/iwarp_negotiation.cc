// MPA set-up frames from an unknown peer, as request and as reply: however they are cut, they are accepted or
// refused and never read beyond their end; an accepted frame means the same when we encode it again.
#include "fuzz.h"
#include "providers/iwarp/protocol/negotiation.h"

using namespace verbena::iwarp;

namespace {

bool same(const SetUpFrame& a, const SetUpFrame& b) {
  return a.is_reply == b.is_reply && a.rejected == b.rejected && a.crc == b.crc && a.markers == b.markers &&
         a.revision == b.revision && a.ird == b.ird && a.ord == b.ord &&
         a.trailer.has_value() == b.trailer.has_value() && a.private_data == b.private_data &&
         a.peer_to_peer == b.peer_to_peer && a.offers_zero_length == b.offers_zero_length &&
         a.offers_write == b.offers_write && a.offers_read == b.offers_read;
}

bool ends_like_a_trailer(const std::vector<uint8_t>& data) {
  if (data.size() < sizeof(PrivateTrailer)) return false;
  const uint8_t* end = data.data() + data.size() - sizeof(PrivateTrailer);
  return std::memcmp(end + offsetof(PrivateTrailer, magic), kTrailerMagic, sizeof kTrailerMagic) == 0;
}

// Reads a frame `step` bytes at a time; what follows it in `bytes` is left.
std::optional<SetUpFrame> read_frame(bool reply, std::span<const uint8_t>& bytes, size_t step) {
  FrameReader reader(reply);
  while (!bytes.empty()) {
    REQUIRE(reader.wanted() > 0 && reader.wanted() <= sizeof(MpaFrame) + kMpaMaxPrivate);
    const size_t n = std::min({bytes.size(), reader.wanted(), step});
    const auto event = reader.take(bytes.first(n));
    bytes = bytes.subspan(n);
    if (event == FrameReader::Event::malformed) return std::nullopt;
    if (event == FrameReader::Event::done) return reader.frame();
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const bool reply = input.byte() & 1, wants_crc = input.byte() & 1;
  const size_t step = size_t{input.byte()} + 1;
  const fuzz::Bytes wire = input.rest();
  std::span<const uint8_t> left(reinterpret_cast<const uint8_t*>(wire.data()), wire.size());
  const auto frame = read_frame(reply, left, step);
  if (!frame) return 0;
  REQUIRE(frame->private_data.size() <= kMpaMaxPrivate);
  REQUIRE(!frame->ird || (*frame->ird <= kMpaDepthMask && *frame->ord <= kMpaDepthMask));

  SetUpFrame ours;
  if (reply) {
    ours.ird = ours.ord = 4;
    ours.peer_to_peer = ours.offers_write = ours.offers_read = true;
  } else {
    ours = reply_to(*frame, wants_crc, 4, 4);
  }
  const auto agreement = reply ? agree(ours, *frame, true) : agree(*frame, ours, false);
  if (agreement) {
    REQUIRE(agreement->peer_ird >= 1 && agreement->initiator == reply);
    REQUIRE(agreement->crc || (!frame->crc && !ours.crc));
    REQUIRE(!agreement->acknowledged || frame->trailer);
  }
  // A trailer of another version is dropped; the bytes in front of it may look like a trailer as well.
  if (!frame->trailer && ends_like_a_trailer(frame->private_data)) return 0;
  std::vector<uint8_t> again = encode(*frame);
  std::span<const uint8_t> echo(again);
  const auto repeated = read_frame(reply, echo, step);
  REQUIRE(repeated && echo.empty() && same(*frame, *repeated));
  return 0;
}

namespace {

void write_frame(fuzz::Script& script, const SetUpFrame& frame, unsigned step) {
  const auto bytes = encode(frame);
  script.byte(frame.is_reply).byte(1).byte(step).add(bytes.data(), bytes.size());
}

}  // namespace

SEED("request-revision-1") {
  SetUpFrame frame;
  frame.revision = 1;
  frame.private_data = {'h', 'i'};
  write_frame(script, frame, 255);
}

SEED("request-revision-2-peer-to-peer-from-verbena") {
  SetUpFrame frame;
  frame.ird = frame.ord = 16;
  frame.peer_to_peer = frame.offers_write = frame.offers_read = frame.offers_zero_length = true;
  PrivateTrailer trailer{};
  std::memcpy(trailer.magic, kTrailerMagic, sizeof trailer.magic);
  trailer.version = kTrailerVersion;
  frame.trailer = trailer;
  frame.private_data.assign(100, 7);
  write_frame(script, frame, 0);
}

SEED("request-with-markers") {
  SetUpFrame frame;
  frame.markers = true;
  write_frame(script, frame, 3);
}

SEED("reply-rejected") {
  SetUpFrame frame;
  frame.is_reply = frame.rejected = true;
  frame.ird = frame.ord = 1;
  write_frame(script, frame, 16);
}

SEED("reply-with-a-read-to-greet") {
  SetUpFrame frame;
  frame.is_reply = frame.peer_to_peer = frame.offers_read = true;
  frame.ird = frame.ord = 1;
  frame.crc = false;
  write_frame(script, frame, 255);
}
