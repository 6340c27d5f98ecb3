#include "providers/iwarp/protocol/negotiation.h"

#include <algorithm>
#include <cstring>

namespace verbena::iwarp {
namespace {

// Revision 1 does not negotiate it; every responder accepts one READ at a time.
constexpr uint32_t kDefaultDepth = 1;

uint16_t bit(bool set, uint16_t value) { return set ? value : uint16_t{0}; }

void append(std::vector<uint8_t>& out, const void* bytes, size_t size) {
  const auto* from = static_cast<const uint8_t*>(bytes);
  out.insert(out.end(), from, from + size);
}

}  // namespace

std::vector<uint8_t> encode(const SetUpFrame& frame) {
  const bool enhanced = frame.revision >= 2 && frame.ird && frame.ord;
  MpaFrame head{};
  std::memcpy(head.key, frame.is_reply ? kMpaReplyKey : kMpaRequestKey, kMpaKeyBytes);
  head.flags = static_cast<uint8_t>(
      (frame.markers ? mpa_flag::markers : 0) | (frame.crc ? mpa_flag::crc : 0) |
      (frame.is_reply && frame.rejected ? mpa_flag::reject : 0) | (enhanced ? mpa_flag::enhanced : 0));
  head.revision = frame.revision;
  std::vector<uint8_t> body;
  if (enhanced) {
    MpaEnhanced depth;
    depth.ird =
        static_cast<uint16_t>((*frame.ird & kMpaDepthMask) | bit(frame.peer_to_peer, mpa_ird::peer_to_peer) |
                              bit(frame.offers_zero_length, mpa_ird::zero_length_rtr));
    depth.ord =
        static_cast<uint16_t>((*frame.ord & kMpaDepthMask) | bit(frame.offers_write, mpa_ord::write_rtr) |
                              bit(frame.offers_read, mpa_ord::read_rtr));
    append(body, &depth, sizeof depth);
  }
  append(body, frame.private_data.data(), frame.private_data.size());
  if (frame.trailer) append(body, &*frame.trailer, sizeof(PrivateTrailer));
  head.private_length = static_cast<uint16_t>(body.size());
  std::vector<uint8_t> out;
  append(out, &head, sizeof head);
  append(out, body.data(), body.size());
  return out;
}

FrameReader::Event FrameReader::take(std::span<const uint8_t> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  const char* key = expects_reply_ ? kMpaReplyKey : kMpaRequestKey;
  const size_t known = std::min(bytes_.size(), kMpaKeyBytes);
  if (std::memcmp(bytes_.data(), key, known) != 0) return Event::malformed;
  if (bytes_.size() < needed_) return Event::more;
  MpaFrame head;
  std::memcpy(&head, bytes_.data(), sizeof head);
  if (needed_ == sizeof head) {
    const size_t length = head.private_length;
    const bool enhanced = head.revision >= 2 && (head.flags & mpa_flag::enhanced);
    if (length > kMpaMaxPrivate || head.revision == 0 || head.revision > 2) return Event::malformed;
    if (enhanced && length < sizeof(MpaEnhanced)) return Event::malformed;
    needed_ += length;
    if (length > 0) return Event::more;
  }
  return Event::done;
}

SetUpFrame FrameReader::frame() const {
  MpaFrame head;
  std::memcpy(&head, bytes_.data(), sizeof head);
  SetUpFrame frame;
  frame.is_reply = expects_reply_;
  frame.rejected = expects_reply_ && (head.flags & mpa_flag::reject);
  frame.crc = head.flags & mpa_flag::crc;
  frame.markers = head.flags & mpa_flag::markers;
  frame.revision = head.revision;
  std::span<const uint8_t> body(bytes_.data() + sizeof head, bytes_.size() - sizeof head);
  if (head.revision >= 2 && (head.flags & mpa_flag::enhanced)) {
    MpaEnhanced depth;
    std::memcpy(&depth, body.data(), sizeof depth);
    body = body.subspan(sizeof depth);
    frame.ird = static_cast<uint16_t>(depth.ird & kMpaDepthMask);
    frame.ord = static_cast<uint16_t>(depth.ord & kMpaDepthMask);
    frame.peer_to_peer = depth.ird & mpa_ird::peer_to_peer;
    frame.offers_zero_length = depth.ird & mpa_ird::zero_length_rtr;
    frame.offers_write = depth.ord & mpa_ord::write_rtr;
    frame.offers_read = depth.ord & mpa_ord::read_rtr;
  }
  if (body.size() >= sizeof(PrivateTrailer)) {
    PrivateTrailer trailer;
    std::memcpy(&trailer, body.data() + body.size() - sizeof trailer, sizeof trailer);
    const bool ours = std::memcmp(trailer.magic, kTrailerMagic, sizeof trailer.magic) == 0;
    // A trailer of another version: its meaning is unknown, and the bytes are not the user's.
    if (ours) body = body.first(body.size() - sizeof trailer);
    if (ours && trailer.version == kTrailerVersion) frame.trailer = trailer;
  }
  frame.private_data.assign(body.begin(), body.end());
  return frame;
}

SetUpFrame reply_to(const SetUpFrame& request, bool wants_crc, uint16_t ird, uint16_t ord) {
  SetUpFrame reply;
  reply.is_reply = true;
  reply.revision = std::min<uint8_t>(request.revision, 2);
  reply.crc = wants_crc || request.crc;
  if (!request.ird) return reply;
  reply.ird = ird;
  reply.ord = std::min(ord, *request.ird);
  reply.peer_to_peer = request.peer_to_peer;
  // The best offer: a zero-length WRITE needs no response and no key.
  reply.offers_write = request.peer_to_peer && request.offers_write;
  reply.offers_read = request.peer_to_peer && request.offers_read && !reply.offers_write;
  reply.offers_zero_length =
      request.peer_to_peer && request.offers_zero_length && !reply.offers_write && !reply.offers_read;
  return reply;
}

std::optional<Agreement> agree(const SetUpFrame& request, const SetUpFrame& reply, bool initiator) {
  const SetUpFrame& peer = initiator ? reply : request;
  const SetUpFrame& own = initiator ? request : reply;
  Agreement agreement;
  agreement.initiator = initiator;
  agreement.crc = request.crc || reply.crc;
  agreement.sends_markers = peer.markers;
  agreement.expects_markers = own.markers;
  agreement.acknowledged = request.trailer && reply.trailer &&
                           !((request.trailer->flags | reply.trailer->flags) & trailer_flag::plain);
  agreement.takes_runs = agreement.acknowledged && (peer.trailer->flags & trailer_flag::takes_runs);
  agreement.peer_ird = std::max<uint32_t>(peer.ird.value_or(kDefaultDepth), 1);
  if (peer.trailer) agreement.peer_qp = peer.trailer->from_qp;
  if (request.peer_to_peer && reply.peer_to_peer) {
    agreement.rtr = reply.offers_write         ? Rtr::write
                    : reply.offers_read        ? Rtr::read
                    : reply.offers_zero_length ? Rtr::zero_length
                                               : Rtr::none;
    // A zero-length FPDU has no DDP header. We never offer it, so a peer cannot choose it.
    if (initiator && agreement.rtr == Rtr::zero_length) return std::nullopt;
  }
  return agreement;
}

}  // namespace verbena::iwarp
