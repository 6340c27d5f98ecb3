#include "providers/iwarp/framing.h"

#include <algorithm>
#include <cstring>

#include "util/crc32c.h"

namespace verbena::iwarp {
namespace {

uint32_t load_crc(const std::byte* at) {
  uint32_t crc = 0;
  for (size_t i = 0; i < kMpaCrcBytes; ++i) crc |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return crc;
}

}  // namespace

size_t FpduReader::room(std::span<iovec> out) {
  if (begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  size_t count = 0, ahead = kStageBytes - end_;
  direct_ = 0;
  const size_t held = crc_enabled_ ? kHeldBack : 0;
  if (state_ == State::payload && mode_ == Mode::place && buffered() == 0 && payload_left_ > held) {
    direct_ = payload_left_ - held;
    size_t left = direct_;
    for (size_t i = piece_, skip = piece_offset_; left > 0 && count + 1 < out.size(); ++i, skip = 0) {
      const size_t n = std::min(pieces_[i].iov_len - skip, left);
      if (n > 0) out[count++] = {static_cast<std::byte*>(pieces_[i].iov_base) + skip, n};
      left -= n;
    }
    direct_ -= left;
    if (left > 0) return count;
    ahead = held + trailer_bytes() + kReadAhead;
  }
  out[count++] = {stage_.data() + end_, ahead};
  return count;
}

void FpduReader::arrived(size_t bytes) {
  const size_t direct = std::min(bytes, direct_);
  payload_left_ -= direct;
  direct_ -= direct;
  for (size_t left = direct; left > 0;) {
    const iovec& piece = pieces_[piece_];
    const size_t n = std::min(piece.iov_len - piece_offset_, left);
    sum(static_cast<const std::byte*>(piece.iov_base) + piece_offset_, n);
    piece_offset_ += n;
    left -= n;
    if (piece_offset_ == piece.iov_len) {
      ++piece_;
      piece_offset_ = 0;
    }
  }
  end_ += bytes - direct;
}

FpduReader::Event FpduReader::next() {
  switch (state_) {
    case State::head:
      return begin_segment();
    case State::decide:
      state_ = State::payload;
      sum(stage_.data() + begin_, kMpaLengthBytes + header_size_);
      begin_ += kMpaLengthBytes + header_size_;
      if (mode_ == Mode::keep && payload_left_ > kMaxControlBytes) mode_ = Mode::discard;
      return go_on();
    case State::payload:
      return go_on();
  }
  return Event::malformed;
}

FpduReader::Event FpduReader::begin_segment() {
  if (buffered() < kMpaLengthBytes + 1) return Event::more;  // an empty FPDU is longer, too
  const std::byte* at = stage_.data() + begin_;
  ulpdu_length_ = std::to_integer<size_t>(at[0]) << 8 | std::to_integer<size_t>(at[1]);
  if (ulpdu_length_ == 0) return take_empty();
  const bool tagged = std::to_integer<uint8_t>(at[kMpaLengthBytes]) & ddp_control::tagged;
  header_size_ = tagged ? sizeof(TaggedHeader) : sizeof(UntaggedHeader);
  if (ulpdu_length_ < header_size_) return Event::malformed;
  if (buffered() < kMpaLengthBytes + header_size_) return Event::more;
  std::memcpy(header_.data(), at + kMpaLengthBytes, header_size_);
  payload_left_ = ulpdu_length_ - header_size_;
  piece_ = piece_offset_ = piece_count_ = kept_size_ = 0;
  crc_ = 0;
  mode_ = Mode::discard;
  state_ = State::decide;
  return Event::header;
}

FpduReader::Event FpduReader::take_empty() {
  const size_t summed = kMpaLengthBytes + pad_bytes(0);
  if (buffered() < summed + kMpaCrcBytes) return Event::more;
  crc_ = 0;
  sum(stage_.data() + begin_, summed);
  if (crc_enabled_ && crc_ != load_crc(stage_.data() + begin_ + summed)) return Event::corrupt;
  begin_ += summed + kMpaCrcBytes;
  ++segments_;
  return Event::empty;
}

void FpduReader::place(std::span<const iovec> pieces) {
  mode_ = Mode::place;
  piece_count_ = std::min(pieces.size(), pieces_.size());
  std::copy_n(pieces.begin(), piece_count_, pieces_.begin());
}

FpduReader::Event FpduReader::go_on() {
  const std::byte* at = stage_.data() + begin_;
  const size_t pad = pad_bytes(ulpdu_length_);
  if (buffered() < payload_left_ + trailer_bytes()) {
    if (mode_ == Mode::keep) return Event::more;
    // What is in the stage already goes where it belongs, but for the bytes to be held back.
    const size_t held = crc_enabled_ ? std::min(payload_left_, kHeldBack) : 0;
    const size_t n = std::min(buffered(), payload_left_ - held);
    sum(at, n);
    put(at, n);
    payload_left_ -= n;
    begin_ += n;
    return Event::more;
  }
  sum(at, payload_left_ + pad);
  if (crc_enabled_ && crc_ != load_crc(at + payload_left_ + pad)) return Event::corrupt;
  if (mode_ == Mode::keep) {
    std::memcpy(kept_.data(), at, payload_left_);
    kept_size_ = payload_left_;
  } else {
    put(at, payload_left_);
  }
  begin_ += payload_left_ + trailer_bytes();
  payload_left_ = 0;
  state_ = State::head;
  ++segments_;
  return Event::end;
}

void FpduReader::sum(const std::byte* bytes, size_t size) {
  if (crc_enabled_) crc_ = crc32c(crc_, bytes, size);
}

void FpduReader::put(const std::byte* bytes, size_t size) {
  if (mode_ != Mode::place) return;
  while (size > 0) {
    const iovec& piece = pieces_[piece_];
    const size_t n = std::min(piece.iov_len - piece_offset_, size);
    if (n > 0) std::memcpy(static_cast<std::byte*>(piece.iov_base) + piece_offset_, bytes, n);
    bytes += n;
    size -= n;
    piece_offset_ += n;
    if (piece_offset_ == piece.iov_len) {
      ++piece_;
      piece_offset_ = 0;
    }
  }
}

}  // namespace verbena::iwarp
