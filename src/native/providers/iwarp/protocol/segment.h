// One DDP segment: its header taken apart on the way in, put together and sealed as an FPDU on the way out.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "providers/iwarp/protocol/ddp_layout.h"
#include "providers/iwarp/protocol/framing.h"
#include "providers/iwarp/protocol/markers.h"

namespace verbena::iwarp {

// Largest payload of a segment: with every header the length stays in its 16 bits, and it is a multiple
// of 64.
constexpr size_t kMaxSegmentPayload = 65536 - 128;
// And with markers, whose pointers have 16 bits, too: the FPDU is longer by one word in 127.
constexpr size_t kMaxMarkedPayload = 65536 - 1024;

struct SegmentHeader {
  RdmapOpcode opcode = RdmapOpcode::terminate;
  bool tagged = false, last = false;
  bool ddp_version_ok = false, rdmap_version_ok = false;
  uint32_t stag = 0;    // tagged
  uint64_t offset = 0;  // tagged: in the buffer; untagged: in the message
  uint32_t queue = 0, message = 0, invalidate = 0;
  uint32_t length = 0;  // of the payload
};

// `bytes` are a whole tagged or untagged header.
SegmentHeader decode_header(std::span<const std::byte> bytes, size_t payload_bytes);

// A segment on its way out: [head | payload pieces | trailer], sent in this order by one writev(2).
struct OutSegment {
  // Small payloads are copied behind the header: an iovec costs more, and nobody can change them any more.
  static constexpr size_t kCopiedPayload = 512;
  static constexpr size_t kTrailerBytes = kMpaAlignment + kMpaCrcBytes;
  static constexpr size_t kHeadBytes =
      kMpaLengthBytes + sizeof(UntaggedHeader) + kCopiedPayload + kTrailerBytes;
  enum class Source : uint8_t { copied, request, region };

  std::array<std::byte, kHeadBytes> head;
  std::array<std::byte, kTrailerBytes> trailer;
  std::array<iovec, kMaxPieces> pieces;
  uint32_t head_size = 0, piece_count = 0, trailer_size = 0, payload_size = 0;
  struct GiveBack {
    void operator()(std::byte* block) const;
  };
  // Holds the payload of a READ response under a CRC, or a whole FPDU with markers.
  std::unique_ptr<std::byte, GiveBack> snapshot;
  const std::byte* snapshot_of = nullptr;
  uint32_t head_sum = 0, sum = 0;  // sealed with a CRC: of the head, and of head and payload

  // Where the pieces are, to be checked again if they could not be sent at once.
  Source source = Source::copied;
  uint64_t request = 0;       // an index into the send queue
  uint32_t region_key = 0;    // or a region
  bool ends_request = false;  // the request's last one

  void begin_tagged(RdmapOpcode opcode, bool last, uint32_t stag, uint64_t offset);
  void begin_untagged(RdmapOpcode opcode, bool last, Queue queue, uint32_t message, uint32_t offset,
                      uint32_t invalidate = 0);
  void append(const void* bytes, size_t size);  // to the head
  void add_piece(const std::byte* bytes, size_t size);
  // The payload as it will be when it is sealed: for memory whose owner may change it at any time.
  void add_snapshot(const std::byte* bytes, size_t size);
  // Writes the length and the trailer (at the end of the head, if all payload is there); then it is final.
  void seal(bool crc);
  // The same for a peer that wants markers: all of it becomes a copy.
  void seal(MarkerInserter& markers);

  // Sealed with a CRC, without markers: continues the checksum of a message by that of this payload.
  uint32_t continue_sum(uint32_t seed) const;

  size_t total_bytes() const { return head_size + payload_size + trailer_size; }
  // The pieces in order, without the first `skip` bytes. Returns how many were written to `out`.
  size_t gather(size_t skip, std::span<iovec> out) const;

 private:
  void begin();
  void write_length();
};

}  // namespace verbena::iwarp
