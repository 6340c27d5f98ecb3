// How a connection begins: MPA request and reply, revisions 1 and 2, private data, and what both ends agree
// on. Pure: bytes in, bytes out. Limits are the RFC's: 512 bytes of private data, ours and the user's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "providers/iwarp/protocol/mpa_layout.h"
#include "providers/iwarp/protocol/verbena_layout.h"

namespace verbena::iwarp {

constexpr size_t kMaxUserPrivate = kMpaMaxPrivate - sizeof(MpaEnhanced) - sizeof(PrivateTrailer);

enum class Rtr : uint8_t { none, zero_length, write, read };  // the initiator's first message, peer to peer

// A request or reply, taken apart.
struct SetUpFrame {
  bool is_reply = false, rejected = false, crc = true, markers = false, peer_to_peer = false;
  uint8_t revision = 2;
  std::optional<uint16_t> ird, ord;                                            // revision 2
  bool offers_zero_length = false, offers_write = false, offers_read = false;  // as first messages
  std::optional<PrivateTrailer> trailer;                                       // a Verbena end
  std::vector<uint8_t> private_data;                                           // the user's
};

std::vector<uint8_t> encode(const SetUpFrame& frame);

// Takes a frame off a stream and not a byte more: what follows are FPDUs.
class FrameReader {
 public:
  enum class Event : uint8_t { more, done, malformed };

  explicit FrameReader(bool expects_reply) : expects_reply_(expects_reply) {}
  size_t wanted() const { return needed_ - bytes_.size(); }  // bytes to read next, never more
  Event take(std::span<const uint8_t> bytes);
  SetUpFrame frame() const;  // after Event::done

 private:
  const bool expects_reply_;
  size_t needed_ = sizeof(MpaFrame);
  std::vector<uint8_t> bytes_;
};

// What holds for the connection, as seen from one end.
struct Agreement {
  bool initiator = false, crc = true, acknowledged = false;
  bool sends_markers = false, expects_markers = false;  // the peer, and we, have asked for them
  Rtr rtr = Rtr::none;
  bool takes_runs = false;  // the peer: see Run in stream.h
  uint32_t peer_ird = 1;    // how many READs and atomics the peer takes at once
  uint32_t peer_qp = 0;
};

// The reply's answer to a request: revision, RTR and CRC as asked. Trailer, private data and whether we want
// markers are the caller's.
SetUpFrame reply_to(const SetUpFrame& request, bool wants_crc, uint16_t ird, uint16_t ord);

// What the pair of frames means. Empty: it can't work (the peer insists on nothing we offered).
std::optional<Agreement> agree(const SetUpFrame& request, const SetUpFrame& reply, bool initiator);

}  // namespace verbena::iwarp
