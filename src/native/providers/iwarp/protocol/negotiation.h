// Connection set-up: MPA request and reply (revisions 1 and 2), private data, and the agreement of both ends.
// No I/O. The RFC limits private data to 512 bytes, which the user shares with our trailer.
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

enum class Rtr : uint8_t {
  none,
  zero_length,
  write,
  read
};  // the initiator's first message in peer-to-peer mode (RFC 6581)

// A decoded request or reply.
struct SetUpFrame {
  bool is_reply = false, rejected = false, crc = true, markers = false, peer_to_peer = false;
  uint8_t revision = 2;
  std::optional<uint16_t> ird, ord;  // revision 2
  bool offers_zero_length = false, offers_write = false,
       offers_read = false;               // RTR messages that the sender supports
  std::optional<PrivateTrailer> trailer;  // only from a Verbena end
  std::vector<uint8_t> private_data;      // of the user
};

std::vector<uint8_t> encode(const SetUpFrame& frame);

// Reads exactly one frame from a stream: what follows are FPDUs.
class FrameReader {
 public:
  enum class Event : uint8_t { more, done, malformed };

  explicit FrameReader(bool expects_reply) : expects_reply_(expects_reply) {}
  size_t wanted() const { return needed_ - bytes_.size(); }  // the most bytes that may be read next
  Event take(std::span<const uint8_t> bytes);
  SetUpFrame frame() const;  // after Event::done

 private:
  const bool expects_reply_;
  size_t needed_ = sizeof(MpaFrame);
  std::vector<uint8_t> bytes_;
};

// The properties of the connection, as seen from one end.
struct Agreement {
  bool initiator = false, crc = true, acknowledged = false;
  bool sends_markers = false, expects_markers = false;  // requested by the peer, and by us
  Rtr rtr = Rtr::none;
  bool takes_runs = false;  // the peer supports them: see Run in stream.h
  uint32_t peer_ird = 1;    // how many READs and atomics the peer accepts at once
  uint32_t peer_qp = 0;
};

// The reply to a request: revision, RTR and CRC as requested. The caller sets trailer, private data and
// whether we want markers.
SetUpFrame reply_to(const SetUpFrame& request, bool wants_crc, uint16_t ird, uint16_t ord);

// The agreement that results from both frames. Empty when there is none: the peer accepts nothing that we
// offered.
std::optional<Agreement> agree(const SetUpFrame& request, const SetUpFrame& reply, bool initiator);

}  // namespace verbena::iwarp
