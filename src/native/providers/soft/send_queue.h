// The send queue of one QP: a bounded ring into which requests are copied when they are posted. Its storage
// grows with the number of requests that wait at once, since most queue pairs of a node with thousands of
// sessions need little of their depth. Entries: head (oldest unfinished) .. next (first that the wire has not
// taken) .. tail.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "verbs/types.h"

namespace verbena::soft {

constexpr uint32_t kMaxInline = 1024;
constexpr uint64_t kMaxMessage = 1ull << 31;

// A posted request. `local` points into the queue; `crc32c` is valid only during the post.
struct SendEntry : SendRequest {
  uint64_t length = 0;  // bytes of all pieces together
  // For the wire's own use while the entry is in progress.
  Status status = Status::success;
  bool started = false;
  bool finished = false;
  uint32_t sum = 0;  // CRC32C of the bytes that were sent so far, if the request wants it
  uint64_t cursor = 0;
};

class SendQueue {
 public:
  explicit SendQueue(const QpLimits& limits);  // throws limit_exceeded

  // Copies requests until the batch ends or one does not fit. `reserved` slots stay free.
  PostResult append(std::span<const SendRequest> batch, bool signal_all, uint32_t reserved);

  // Adds a request that the wire has sent already. The caller has checked that there is room.
  SendEntry& append_sent(const SendRequest& request, bool signal_all, uint64_t length);

  // Requests with an opcode that the wire does not support with this peer are refused when they are posted.
  void allow(Opcode opcode, bool allowed) {
    const uint32_t bit = 1u << static_cast<uint32_t>(opcode);
    allowed_ = allowed ? allowed_ | bit : allowed_ & ~bit;
  }
  bool allows(Opcode opcode) const {
    return opcode <= Opcode::fetch_add && (allowed_ >> static_cast<uint32_t>(opcode) & 1);
  }

  uint32_t max_inline() const { return max_inline_; }
  uint64_t head() const { return head_; }
  uint64_t next() const { return next_; }
  uint64_t tail() const { return tail_; }
  uint64_t room() const { return depth_ - (tail_ - head_); }
  SendEntry& at(uint64_t index) { return entries_[index & mask_]; }
  const SendEntry& at(uint64_t index) const { return entries_[index & mask_]; }
  std::span<const Sge> local(uint64_t index) const { return at(index).local; }
  void advance_next() { ++next_; }
  void pop_head() { ++head_; }
  void clear() { head_ = next_ = tail_; }

 private:
  SendEntry& fill_next(const SendRequest& request, bool signal_all, uint64_t length);
  void grow();
  std::byte* inline_bytes_of(uint64_t index);
  Sge* pieces_of(uint64_t index) { return pieces_.data() + (index & mask_) * pieces_per_entry_; }

  const uint32_t depth_, max_sge_, max_inline_;
  const size_t pieces_per_entry_;
  uint64_t mask_;  // storage is a power of two, so that an index needs no division
  std::vector<SendEntry> entries_;
  std::vector<Sge> pieces_;
  std::vector<std::unique_ptr<std::byte[]>> inline_bytes_;  // of an entry, made when it first needs them
  uint64_t head_ = 0, next_ = 0, tail_ = 0;
  uint32_t allowed_ = UINT32_MAX;  // a bit for each opcode
};

}  // namespace verbena::soft
