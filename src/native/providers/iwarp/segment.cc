#include "providers/iwarp/segment.h"

#include <cstring>
#include <new>

#include "util/crc32c.h"

namespace verbena::iwarp {
namespace {

uint8_t ddp_byte(bool tagged, bool last) {
  return static_cast<uint8_t>(ddp_control::version | (tagged ? ddp_control::tagged : 0) |
                              (last ? ddp_control::last : 0));
}

uint8_t rdmap_byte(RdmapOpcode opcode) {
  return static_cast<uint8_t>(rdmap_control::version | static_cast<uint8_t>(opcode));
}

}  // namespace

SegmentHeader decode_header(std::span<const std::byte> bytes, size_t payload_bytes) {
  SegmentHeader header;
  const auto ddp = std::to_integer<uint8_t>(bytes[0]);
  const auto rdmap = std::to_integer<uint8_t>(bytes[1]);
  header.tagged = ddp & ddp_control::tagged;
  header.last = ddp & ddp_control::last;
  header.ddp_version_ok = (ddp & ddp_control::version_mask) == ddp_control::version;
  header.rdmap_version_ok = (rdmap & rdmap_control::version_mask) == rdmap_control::version;
  header.opcode = static_cast<RdmapOpcode>(rdmap & rdmap_control::opcode_mask);
  header.length = static_cast<uint32_t>(payload_bytes);
  if (header.tagged) {
    TaggedHeader tagged;
    std::memcpy(&tagged, bytes.data(), sizeof tagged);
    header.stag = tagged.stag;
    header.offset = tagged.offset;
  } else {
    UntaggedHeader untagged;
    std::memcpy(&untagged, bytes.data(), sizeof untagged);
    header.invalidate = untagged.invalidate_stag;
    header.queue = untagged.queue;
    header.message = untagged.message_number;
    header.offset = untagged.message_offset;
  }
  return header;
}

void OutSegment::begin() {
  head_size = kMpaLengthBytes;
  piece_count = trailer_size = payload_size = 0;
  source = Source::copied;
  ends_request = false;
  snapshot.reset();
}

void OutSegment::begin_tagged(RdmapOpcode opcode, bool last, uint32_t stag, uint64_t offset) {
  begin();
  const TaggedHeader header{ddp_byte(true, last), rdmap_byte(opcode), stag, offset};
  append(&header, sizeof header);
}

void OutSegment::begin_untagged(RdmapOpcode opcode, bool last, Queue queue, uint32_t message, uint32_t offset,
                                uint32_t invalidate) {
  begin();
  const UntaggedHeader header{
      ddp_byte(false, last), rdmap_byte(opcode), invalidate, static_cast<uint32_t>(queue), message, offset};
  append(&header, sizeof header);
}

void OutSegment::append(const void* bytes, size_t size) {
  if (size == 0) return;
  std::memcpy(head.data() + head_size, bytes, size);
  head_size += static_cast<uint32_t>(size);
}

void OutSegment::add_piece(const std::byte* bytes, size_t size) {
  if (size == 0) return;
  pieces[piece_count++] = {const_cast<std::byte*>(bytes), size};
  payload_size += static_cast<uint32_t>(size);
}

void OutSegment::add_snapshot(const std::byte* bytes, size_t size) {
  // By whole pages: copies between addresses that differ by a few bytes within a page are slow.
  constexpr size_t kPage = 4096;
  snapshot.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage)));
  if (!snapshot) throw std::bad_alloc();
  snapshot_of = bytes;
  add_piece(snapshot.get(), size);
}

void OutSegment::seal(bool crc) {
  const size_t ulpdu = head_size - kMpaLengthBytes + payload_size;
  const Be16 length = static_cast<uint16_t>(ulpdu);
  std::memcpy(head.data(), &length, sizeof length);
  const size_t pad = pad_bytes(ulpdu);
  std::memset(trailer.data(), 0, trailer.size());
  if (crc) {
    uint32_t sum = crc32c(0, head.data(), head_size);
    if (snapshot) {
      sum = copy_crc32c(sum, snapshot.get(), snapshot_of, payload_size);
    } else {
      for (size_t i = 0; i < piece_count; ++i) {
        sum = crc32c(sum, pieces[i].iov_base, pieces[i].iov_len);
      }
    }
    sum = crc32c(sum, trailer.data(), pad);
    for (size_t i = 0; i < kMpaCrcBytes; ++i) trailer[pad + i] = static_cast<std::byte>(sum >> (8 * i));
  }
  if (piece_count == 0) return append(trailer.data(), pad + kMpaCrcBytes);
  trailer_size = static_cast<uint32_t>(pad + kMpaCrcBytes);
}

size_t OutSegment::gather(size_t skip, std::span<iovec> out) const {
  size_t count = 0;
  const auto add = [&](const void* base, size_t size) {
    if (skip >= size) {
      skip -= size;
      return;
    }
    out[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(base)) + skip, size - skip};
    skip = 0;
  };
  add(head.data(), head_size);
  for (size_t i = 0; i < piece_count; ++i) add(pieces[i].iov_base, pieces[i].iov_len);
  add(trailer.data(), trailer_size);
  return count;
}

}  // namespace verbena::iwarp
