// Channel: a byte stream in FPDU mode, with the protocol state machine (Stream), the segments that wait to be
// sent, and the system calls. Belongs to one queue pair and runs under its lock. Depends on protocol/ and
// net/.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "net/stream_socket.h"
#include "providers/iwarp/protocol/stream.h"

namespace verbena::iwarp {

// Detects a segment that is never completed. Without it, a peer that sends a byte now and then could hold
// memory and a queue slot without limit.
class StallDetector {
 public:
  // Called from time to time with the number of complete segments and whether one is incomplete.
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

  Channel(net::StreamSocket socket, const Agreement& agreement, uint32_t own_ird, uint8_t rnr_timer,
          StreamHost& host);

  const net::StreamSocket& stream_socket() const { return stream_socket_; }
  net::StreamSocket release_socket() { return std::move(stream_socket_); }
  Stream& stream() { return stream_; }
  const Stream& stream() const { return stream_; }
  uint64_t bytes_moved() const { return moved_; }  // in both directions: shows that the peer is alive
  bool is_stalled(uint64_t now, uint64_t limit_ns) {
    return stall_detector_.is_late(now, stream_.reader().segments(), stream_.in_segment(), limit_ns);
  }

  // Reads what the socket holds, at most about kMaxReadBytes. `blocked` here means that the stream itself has
  // ended.
  Io read(size_t& bytes);

  // Sending: claim a segment, fill it, commit it. Call flush() when there is nothing more or no room.
  size_t room() const { return kBatch - count_; }
  OutSegment* claim() {
    if (count_ == kBatch) return nullptr;
    if (count_ == batch_.size()) batch_.resize(count_ == 0 ? kInitialSegments : kBatch);
    return &batch_[count_];
  }
  size_t commit() { return batch_[count_++].total_bytes(); }
  bool has_output() const { return count_ > 0 || stream_socket_.has_unsent(); }
  // Writes the batch and calls `on_sent` for each segment that was written completely.
  template <typename OnSent>
  Io flush(OnSent on_sent);
  // False when `is_valid` rejects a segment whose payload is not a copy.
  template <typename IsValid>
  bool check_output(IsValid is_valid) const {
    for (size_t i = first_; i < count_; ++i) {
      if (batch_[i].source != OutSegment::Source::copied && !is_valid(batch_[i])) return false;
    }
    return true;
  }
  // A copy of the unsent bytes of a partly sent segment; nothing else of the batch.
  std::vector<std::byte> rest_of_segment() const;

 private:
  static constexpr size_t kMaxIovecs = 96;
  static constexpr size_t kInitialSegments = 4;  // enough for a connection without long requests
  // Bounded because a thread that wants to post waits for the queue pair's lock meanwhile.
  static constexpr size_t kMaxReadBytes = 1 << 19;

  Io read_marked(size_t& bytes);
  ssize_t write_batch();

  net::StreamSocket stream_socket_;
  Stream stream_;
  std::vector<OutSegment> batch_;
  size_t first_ = 0, count_ = 0;  // segments first_..count_ wait
  size_t sent_ = 0;               // bytes of the first of them that were written
  bool was_full_ = false;
  uint64_t moved_ = 0;
  StallDetector stall_detector_;
};

template <typename OnSent>
Channel::Io Channel::flush(OnSent on_sent) {
  // has_room() requires a good deal of room. Otherwise a polling thread would fill every small gap with a
  // tiny write.
  if (was_full_ && !stream_socket_.has_room()) return Io::blocked;
  was_full_ = false;
  while (first_ < count_) {
    ssize_t written = write_batch();
    // A stream that buffers its output can be full before it has sent anything: flush it and try again.
    if (written == -1 && stream_socket_.buffers_writes() && stream_socket_.flush()) written = write_batch();
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
  if (stream_socket_.flush()) return Io::done;
  was_full_ = net::would_block(errno);
  return was_full_ ? Io::blocked : Io::lost;
}

// A connection that is being closed: the remaining output, then a half-close, then the peer's end of stream.
struct ClosingConnection {
  net::StreamSocket socket;
  std::vector<std::byte> output;
  size_t sent = 0;
  uint64_t deadline_ns = 0;
  bool is_half_closed = false;

  // True when the socket may be closed.
  bool advance(uint64_t now);
};

}  // namespace verbena::iwarp
