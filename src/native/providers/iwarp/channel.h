// A wire in FPDU mode: the stream's state machine, segments waiting to leave, and the system calls.
// Belongs to one queue pair and runs under its lock.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "net/stream_socket.h"
#include "providers/iwarp/protocol/stream.h"

namespace verbena::iwarp {

// Tells a segment that does not come to its end: a peer that sends a byte now and then holds memory, and a
// place in a queue, for as long as it likes.
class StallWatch {
 public:
  // Looked at from time to time, with how many segments are complete and whether one is under way.
  bool is_late(uint64_t now, uint64_t segments, bool in_segment, uint64_t limit_ns) {
    if (!in_segment || segments != segments_ || since_ns_ == 0) {
      segments_ = segments;
      since_ns_ = now;
      return false;
    }
    return now - since_ns_ >= limit_ns;
  }

 private:
  uint64_t segments_ = 0, since_ns_ = 0;
};

class Channel {
 public:
  enum class Io : uint8_t { done, blocked, lost };
  static constexpr size_t kBatch = 20;

  Channel(net::StreamSocket wire, const Agreement& agreement, uint32_t own_ird, uint8_t rnr_timer,
          StreamHost& host);

  const net::StreamSocket& wire() const { return wire_; }
  net::StreamSocket release_wire() { return std::move(wire_); }
  Stream& stream() { return stream_; }
  const Stream& stream() const { return stream_; }
  uint64_t bytes_moved() const { return moved_; }  // either way: a sign of life
  bool is_stalled(uint64_t now, uint64_t limit_ns) {
    return stall_watch_.is_late(now, stream_.reader().segments(), stream_.in_segment(), limit_ns);
  }

  // Takes what is in the socket, up to a fair share. `blocked` here means that the stream ended by itself.
  Io read(size_t& bytes);

  // Sending: claim a segment, fill it, commit it; flush when there is no more or no room.
  size_t room() const { return kBatch - count_; }
  OutSegment* claim() {
    if (count_ == kBatch) return nullptr;
    if (count_ == batch_.size()) batch_.resize(count_ == 0 ? kFewSegments : kBatch);
    return &batch_[count_];
  }
  size_t commit() { return batch_[count_++].total_bytes(); }
  bool has_output() const { return count_ > 0 || wire_.has_unsent(); }
  // Writes the batch; `on_sent` hears of each segment that has left whole.
  template <typename OnSent>
  Io flush(OnSent on_sent);
  // False when `is_valid` denies one of the segments whose pieces are not ours.
  template <typename IsValid>
  bool check_output(IsValid is_valid) const {
    for (size_t i = first_; i < count_; ++i) {
      if (batch_[i].source != OutSegment::Source::copied && !is_valid(batch_[i])) return false;
    }
    return true;
  }
  // What is missing of a segment that has left in part, copied; nothing else of the batch.
  std::vector<std::byte> rest_of_segment() const;

 private:
  static constexpr size_t kMaxIovecs = 96;
  static constexpr size_t kFewSegments = 4;  // all that a connection without long requests has memory for
  // Who wants to post meanwhile waits for the queue pair's lock.
  static constexpr size_t kFairShare = 1 << 19;

  Io read_marked(size_t& bytes);
  ssize_t write_batch();

  net::StreamSocket wire_;
  Stream stream_;
  std::vector<OutSegment> batch_;
  size_t first_ = 0, count_ = 0;  // segments first_..count_ wait
  size_t sent_ = 0;               // bytes of the first of them that have left
  bool was_full_ = false;
  uint64_t moved_ = 0;
  StallWatch stall_watch_;
};

template <typename OnSent>
Channel::Io Channel::flush(OnSent on_sent) {
  // Asked for a good deal of room: who spins would otherwise fill every gap with crumbs.
  if (was_full_ && !wire_.has_room()) return Io::blocked;
  was_full_ = false;
  while (first_ < count_) {
    ssize_t written = write_batch();
    // Who takes bytes to send them later is full before it has sent any: it has to be told.
    if (written == -1 && wire_.holds_back() && wire_.flush()) written = write_batch();
    if (written < 0) {
      was_full_ = written == -1;
      return was_full_ ? Io::blocked : Io::lost;
    }
    moved_ += static_cast<uint64_t>(written);
    sent_ += static_cast<size_t>(written);
    while (first_ < count_ && sent_ >= batch_[first_].total_bytes()) {
      sent_ -= batch_[first_].total_bytes();
      batch_[first_].snapshot.reset();
      on_sent(batch_[first_]);
      ++first_;
    }
  }
  first_ = count_ = 0;
  if (wire_.flush()) return Io::done;
  was_full_ = net::is_not_now(errno);
  return was_full_ ? Io::blocked : Io::lost;
}

// A connection on its way out: what is still to be said, then a half-close, then the peer's.
struct Farewell {
  net::StreamSocket wire;
  std::vector<std::byte> words;
  size_t said = 0;
  uint64_t deadline_ns = 0;
  bool half_closed = false;

  // True when it is over and the wire may be closed.
  bool advance(uint64_t now);
};

}  // namespace verbena::iwarp
