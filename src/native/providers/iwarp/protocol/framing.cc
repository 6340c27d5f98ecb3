#include "providers/iwarp/protocol/framing.h"

#include <algorithm>
#include <cstring>

#include "util/crc32c/crc32c.h"

namespace verbena::iwarp {
namespace {

uint32_t load_crc(const std::byte* at) {
  uint32_t crc = 0;
  for (size_t i = 0; i < kMpaCrcBytes; ++i) crc |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return crc;
}

}  // namespace

// Moves what is left in the stage to its beginning, and doubles the stage if the last read filled it.
void FpduReader::prepare_stage() {
  const size_t left = buffered();
  if (end_ == stage_bytes_ && stage_bytes_ < kMaxStageBytes) {
    auto larger = std::make_unique_for_overwrite<std::byte[]>(2 * stage_bytes_);
    std::memcpy(larger.get(), stage_.get() + begin_, left);
    stage_ = std::move(larger);
    stage_bytes_ *= 2;
  } else if (begin_ > 0) {
    std::memmove(stage_.get(), stage_.get() + begin_, left);
  }
  begin_ = 0;
  end_ = left;
}

size_t FpduReader::room(std::span<iovec> out) {
  prepare_stage();
  size_t count = 0;
  direct_ = planned_ = 0;
  ahead_ = stage_bytes_ - end_;
  const size_t held = held_back();
  if (state_ == State::payload && mode_ == Mode::place && buffered() == 0 && payload_left_ > held) {
    Cursor at = place_;
    direct_ = at.walk(payload_left_ - held, [&](std::byte* to, size_t n) {
      if (count + 1 == out.size()) return false;
      out[count++] = {to, n};
      return true;
    });
    ahead_ = 0;
    if (direct_ < payload_left_ - held) return count;
    if (in_run_) return plan_run(at, out, count);
    // Behind a short segment, such as the answer to a short READ, there are often more: to copy them out of
    // the stage costs less than a system call for each.
    const bool is_short = ulpdu_length_ < kShortBytes;
    ahead_ = is_short ? stage_bytes_ - end_ : held + trailer_bytes() + kReadAhead;
  }
  out[count++] = {stage_.get() + end_, ahead_};
  return count;
}

// Behind the current payload: the rest of its segment and the next header, then the next payload, and so on.
size_t FpduReader::plan_run(Cursor at, std::span<iovec> out, size_t count) {
  const size_t held = held_back();
  std::byte* stage = stage_.get() + end_;
  size_t payload = payload_bytes(), offered = direct_;
  for (uint64_t beyond = beyond_; offered < kRunBytes; beyond -= payload) {
    const size_t next = std::min<uint64_t>(payload, beyond);
    if (next <= held || out.size() - count < kMaxPieces + 2) break;
    const size_t gap = gap_bytes(payload);
    if (planned_++ == 0) ahead_ = gap;
    out[count++] = {stage, gap};
    stage += gap;
    at.skip(held);
    at.walk(next - held, [&](std::byte* to, size_t n) {
      out[count++] = {to, n};
      return true;
    });
    payload = next;
    offered += next;
  }
  const size_t rest = gap_bytes(payload) + kReadAhead;
  if (planned_ == 0) ahead_ = rest;
  out[count++] = {stage, rest};
  return count;
}

void FpduReader::arrived(size_t bytes) {
  const size_t direct = std::min(bytes, direct_);
  const size_t staged = std::min(bytes - direct, ahead_);
  take_direct(direct);
  end_ += staged;
  placed_ahead_ = bytes - direct - staged;
}

void FpduReader::take_direct(size_t bytes) {
  payload_left_ -= bytes;
  place_.walk(bytes, [this](const std::byte* at, size_t n) {
    sum(at, n);
    return true;
  });
}

// The next segment of a run has begun, and some of its bytes are in place already. False: it is not the
// expected one.
bool FpduReader::take_placed_ahead() {
  const size_t held = held_back();
  if (!is_placing() || !in_run_ || buffered() > 0 || planned_ == 0 || payload_left_ <= held) return false;
  const size_t direct = std::min(placed_ahead_, payload_left_ - held);
  take_direct(direct);
  placed_ahead_ -= direct;
  const size_t staged = --planned_ > 0 ? std::min(placed_ahead_, gap_bytes(payload_bytes())) : placed_ahead_;
  end_ += staged;
  placed_ahead_ -= staged;
  return true;
}

FpduReader::Event FpduReader::next() {
  for (;;) {
    const Event event = step();
    if (event != Event::more || placed_ahead_ == 0) return event;
    if (!take_placed_ahead()) return Event::malformed;
  }
}

FpduReader::Event FpduReader::step() {
  switch (state_) {
    case State::head:
      return begin_segment();
    case State::decide:
      state_ = State::payload;
      sum(stage_.get() + begin_, kMpaLengthBytes + header_size_);
      begin_ += kMpaLengthBytes + header_size_;
      if (mode_ == Mode::keep && payload_left_ > kMaxControlBytes) mode_ = Mode::discard;
      return go_on();
    case State::payload:
      return go_on();
  }
  return Event::malformed;
}

FpduReader::Event FpduReader::begin_segment() {
  if (buffered() < kMpaLengthBytes + 1) return Event::more;  // an empty FPDU is longer as well
  const std::byte* at = stage_.get() + begin_;
  ulpdu_length_ = std::to_integer<size_t>(at[0]) << 8 | std::to_integer<size_t>(at[1]);
  if (ulpdu_length_ == 0) return take_empty();
  const bool tagged = std::to_integer<uint8_t>(at[kMpaLengthBytes]) & ddp_control::tagged;
  header_size_ = tagged ? sizeof(TaggedHeader) : sizeof(UntaggedHeader);
  if (ulpdu_length_ < header_size_) return Event::malformed;
  if (buffered() < kMpaLengthBytes + header_size_) return Event::more;
  std::memcpy(header_.data(), at + kMpaLengthBytes, header_size_);
  payload_left_ = ulpdu_length_ - header_size_;
  kept_size_ = 0;
  crc_ = 0;
  mode_ = Mode::discard;
  state_ = State::decide;
  return Event::header;
}

FpduReader::Event FpduReader::take_empty() {
  const size_t summed = kMpaLengthBytes + pad_bytes(0);
  if (buffered() < summed + kMpaCrcBytes) return Event::more;
  crc_ = 0;
  sum(stage_.get() + begin_, summed);
  if (crc_enabled_ && crc_ != load_crc(stage_.get() + begin_ + summed)) return Event::corrupt;
  begin_ += summed + kMpaCrcBytes;
  ++segments_;
  return Event::empty;
}

void FpduReader::place(std::span<const iovec> pieces, uint64_t beyond) {
  mode_ = Mode::place;
  place_.reset(pieces);
  beyond_ = beyond;
  in_run_ = beyond > 0;
}

void FpduReader::continue_run() {
  mode_ = Mode::place;
  beyond_ -= std::min<uint64_t>(beyond_, payload_bytes());
}

FpduReader::Event FpduReader::go_on() {
  const std::byte* at = stage_.get() + begin_;
  const size_t pad = pad_bytes(ulpdu_length_);
  if (buffered() < payload_left_ + trailer_bytes()) {
    if (mode_ == Mode::keep) return Event::more;
    // Bytes in the stage go to their destination, except those that are held back.
    const size_t held = std::min(payload_left_, held_back());
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
  in_run_ = in_run_ && beyond_ > 0;
  ++segments_;
  return Event::end;
}

void FpduReader::sum(const std::byte* bytes, size_t size) {
  if (crc_enabled_) crc_ = crc32c(crc_, bytes, size);
}

void FpduReader::put(const std::byte* bytes, size_t size) {
  if (mode_ != Mode::place) return;
  place_.walk(size, [&bytes](std::byte* to, size_t n) {
    std::memcpy(to, bytes, n);
    bytes += n;
    return true;
  });
}

}  // namespace verbena::iwarp
