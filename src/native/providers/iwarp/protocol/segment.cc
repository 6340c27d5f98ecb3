#include "providers/iwarp/protocol/segment.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "util/crc32c/crc32c.h"
#include "util/spinlock.h"

namespace verbena::iwarp {
namespace {

uint8_t ddp_byte(bool tagged, bool last) {
  return static_cast<uint8_t>(ddp_control::version | (tagged ? ddp_control::tagged : 0) |
                              (last ? ddp_control::last : 0));
}

uint8_t rdmap_byte(RdmapOpcode opcode) {
  return static_cast<uint8_t>(rdmap_control::version | static_cast<uint8_t>(opcode));
}

// Blocks for one FPDU each, aligned to pages: a copy is slow if the offsets of source and destination in
// their pages differ by a few bytes only. A few blocks are kept for reuse: memory that free() has returned to
// the kernel costs a page fault per page when it is used again.
class Blocks {
 public:
  static constexpr size_t kPage = 4096, kBytes = 17 * kPage;

  std::byte* take() {
    {
      const std::lock_guard held(lock_);
      if (count_ > 0) return kept_[--count_];
    }
    void* block = std::aligned_alloc(kPage, kBytes);
    if (!block) throw std::bad_alloc();
    return static_cast<std::byte*>(block);
  }
  void give(std::byte* block) {
    {
      const std::lock_guard held(lock_);
      if (count_ < kept_.size()) {
        kept_[count_++] = block;
        return;
      }
    }
    std::free(block);
  }

 private:
  Spinlock lock_;
  size_t count_ = 0;
  std::array<std::byte*, 32> kept_;
};

Blocks blocks;

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

void OutSegment::ReturnToPool::operator()(std::byte* block) const { blocks.give(block); }

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
  snapshot.reset(blocks.take());
  snapshot_of = bytes;
  add_piece(snapshot.get(), size);
}

void OutSegment::write_length() {
  const Be16 length = static_cast<uint16_t>(head_size - kMpaLengthBytes + payload_size);
  std::memcpy(head.data(), &length, sizeof length);
}

void OutSegment::seal(bool crc) {
  write_length();
  const size_t pad = pad_bytes(head_size - kMpaLengthBytes + payload_size);
  std::memset(trailer.data(), 0, trailer.size());
  if (crc) {
    head_sum = sum = crc32c(0, head.data(), head_size);
    if (snapshot) {
      sum = copy_crc32c(sum, snapshot.get(), snapshot_of, payload_size);
    } else {
      for (size_t i = 0; i < piece_count; ++i) {
        sum = crc32c(sum, pieces[i].iov_base, pieces[i].iov_len);
      }
    }
    const uint32_t all = crc32c(sum, trailer.data(), pad);
    for (size_t i = 0; i < kMpaCrcBytes; ++i) trailer[pad + i] = static_cast<std::byte>(all >> (8 * i));
  }
  if (piece_count == 0) return append(trailer.data(), pad + kMpaCrcBytes);
  trailer_size = static_cast<uint32_t>(pad + kMpaCrcBytes);
}

// A CRC is linear, so the contribution of the head can be removed from `sum` without reading the payload
// again.
uint32_t OutSegment::continue_sum(uint32_t seed) const {
  return combine_crc32c(seed ^ head_sum, sum, payload_size);
}

void OutSegment::seal(MarkerInserter& markers) {
  constexpr std::array<std::byte, kMpaAlignment> kZeros{};
  write_length();
  const size_t pad = pad_bytes(head_size - kMpaLengthBytes + payload_size);
  std::array<iovec, kMaxPieces + 2> all;
  size_t count = 0;
  all[count++] = {head.data(), head_size};
  for (size_t i = 0; i < piece_count; ++i) all[count++] = pieces[i];
  if (snapshot) all[1].iov_base = const_cast<std::byte*>(snapshot_of);  // not copied yet
  all[count++] = {const_cast<std::byte*>(kZeros.data()), pad};
  const size_t size = markers.marked_bytes(head_size + payload_size + pad + kMpaCrcBytes);
  std::unique_ptr<std::byte, ReturnToPool> marked(blocks.take());
  markers.insert({all.data(), count}, marked.get());
  snapshot = std::move(marked);
  pieces[0] = {snapshot.get(), size};
  piece_count = 1;
  payload_size = static_cast<uint32_t>(size);
  head_size = trailer_size = 0;
  source = Source::copied;
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
