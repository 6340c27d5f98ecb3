// DDP segments: the decoded header of a received one, and OutSegment, which builds one and seals it as an
// FPDU.
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

// The largest payload of a segment: a multiple of 64, and with every header the length still fits 16 bits.
constexpr size_t kMaxSegmentPayload = 65536 - 128;
// The largest payload with markers, whose pointers have 16 bits as well: the FPDU is longer by one word in
// 127.
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

// A segment to be sent: [head | payload pieces | trailer], in this order by one writev(2).
struct OutSegment {
  // Small payloads are copied behind the header: an iovec costs more, and a copy cannot change any longer.
  static constexpr size_t kCopiedPayload = 512;
  static constexpr size_t kTrailerBytes = kMpaAlignment + kMpaCrcBytes;
  static constexpr size_t kHeadBytes =
      kMpaLengthBytes + sizeof(UntaggedHeader) + kCopiedPayload + kTrailerBytes;
  enum class Source : uint8_t { copied, request, region };

  std::array<std::byte, kHeadBytes> head;
  std::array<std::byte, kTrailerBytes> trailer;
  std::array<iovec, kMaxPieces> pieces;
  uint32_t head_size = 0, piece_count = 0, trailer_size = 0, payload_size = 0;
  struct ReturnToPool {
    void operator()(std::byte* block) const;
  };
  // Holds the payload of a READ response with CRC, or a whole FPDU with markers.
  std::unique_ptr<std::byte, ReturnToPool> snapshot;
  const std::byte* snapshot_of = nullptr;
  uint32_t head_sum = 0, sum = 0;  // with a CRC: of the head, and of head and payload

  // Where the pieces are. They are checked again if they could not be sent at once.
  Source source = Source::copied;
  uint64_t request = 0;       // an index into the send queue
  uint32_t region_key = 0;    // or a region
  bool ends_request = false;  // the last segment of its request

  void begin_tagged(RdmapOpcode opcode, bool last, uint32_t stag, uint64_t offset);
  void begin_untagged(RdmapOpcode opcode, bool last, Queue queue, uint32_t message, uint32_t offset,
                      uint32_t invalidate = 0);
  void append(const void* bytes, size_t size);  // to the head
  void add_piece(const std::byte* bytes, size_t size);
  // Adds the payload as it is when the segment is sealed: for memory that its owner may change at any time.
  void add_snapshot(const std::byte* bytes, size_t size);
  // Writes the length and the trailer (in the head, if the head holds all payload). The segment is final
  // then.
  void seal(bool crc);
  // As seal(bool), for a peer that wants markers: the whole segment becomes a copy.
  void seal(MarkerInserter& markers);

  // With a CRC and without markers: extends the checksum of a message by this payload.
  uint32_t continue_sum(uint32_t seed) const;

  size_t total_bytes() const { return head_size + payload_size + trailer_size; }
  // Writes the pieces in order, without the first `skip` bytes, and returns their number.
  size_t gather(size_t skip, std::span<iovec> out) const;

 private:
  void begin();
  void write_length();
};

}  // namespace verbena::iwarp
