// A socket in FPDU mode: the stream's state machine, segments waiting to leave, and the system calls.
// Belongs to one queue pair and runs under its lock.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "providers/iwarp/stream.h"
#include "util/fd.h"

namespace verbena::iwarp {

class Channel {
 public:
  enum class Io : uint8_t { done, blocked, lost };
  static constexpr size_t kBatch = 8;

  Channel(UniqueFd socket, const Agreement& agreement, uint32_t own_ird, uint8_t rnr_timer, StreamHost& host);

  int socket() const { return socket_.get(); }
  UniqueFd release_socket() { return std::move(socket_); }
  Stream& stream() { return stream_; }
  const Stream& stream() const { return stream_; }
  uint64_t bytes_moved() const { return moved_; }  // either way: a sign of life

  // Takes what is in the socket, up to a fair share. `blocked` here means that the stream ended by itself.
  Io read(size_t& bytes);

  // Sending: claim a segment, fill it, commit it; flush when there is no more or no room.
  OutSegment* claim() { return count_ < kBatch ? &batch_[count_] : nullptr; }
  size_t commit() { return batch_[count_++].total_bytes(); }
  bool has_output() const { return count_ > 0; }
  bool is_new_output() const { return sent_ == 0 && first_ == 0; }
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
  static constexpr size_t kMaxIovecs = 64;
  // Short: who wants to post meanwhile waits for the queue pair's lock.
  static constexpr size_t kFairShare = 1 << 17;

  ssize_t write_batch();
  // The kernel's word for a good deal of room. Who spins would otherwise fill every gap with crumbs.
  bool has_room() const;

  UniqueFd socket_;
  Stream stream_;
  std::array<OutSegment, kBatch> batch_;
  size_t first_ = 0, count_ = 0;  // segments first_..count_ wait
  size_t sent_ = 0;               // bytes of the first of them that have left
  bool was_full_ = false;
  uint64_t moved_ = 0;
};

template <typename OnSent>
Channel::Io Channel::flush(OnSent on_sent) {
  if (was_full_ && !has_room()) return Io::blocked;
  was_full_ = false;
  while (first_ < count_) {
    ssize_t written = write_batch();
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
  return Io::done;
}

// A connection on its way out: what is still to be said, then a half-close, then the peer's.
struct Farewell {
  UniqueFd socket;
  std::vector<std::byte> words;
  size_t said = 0;
  uint64_t deadline_ns = 0;
  bool half_closed = false;

  // True when it is over and the socket may be closed.
  bool advance(uint64_t now);
};

}  // namespace verbena::iwarp
