#include "providers/soft/send_queue.h"

#include <algorithm>
#include <bit>
#include <string>

#include "providers/soft/receive_queue.h"
#include "providers/soft/scatter.h"
#include "util/error.h"

namespace verbena::soft {
namespace {

constexpr uint32_t kInitialEntries = 16;

}  // namespace

SendQueue::SendQueue(const QpLimits& limits)
    : depth_(limits.max_send),
      max_sge_(limits.max_send_sge),
      max_inline_(limits.max_inline),
      pieces_per_entry_(std::max<uint32_t>(limits.max_send_sge, 1)),
      mask_(std::bit_ceil(std::clamp(limits.max_send, 1u, kInitialEntries)) - 1) {
  const auto refuse = [](const char* what, uint32_t limit) {
    throw Error("limit_exceeded", "create queue pair",
                std::string(what) + " is above " + std::to_string(limit));
  };
  if (limits.max_send > kMaxDepth) refuse("max_send", kMaxDepth);
  if (limits.max_send_sge > kMaxSges) refuse("max_send_sge", kMaxSges);
  if (limits.max_inline > kMaxInline) refuse("max_inline", kMaxInline);
  if (limits.max_send == 0)
    throw Error("invalid_argument", "create queue pair", "max_send must be at least 1");
  entries_.resize(mask_ + 1);
  pieces_.resize(entries_.size() * pieces_per_entry_);
  inline_bytes_.resize(entries_.size());
}

void SendQueue::grow() {
  const uint64_t mask = 2 * mask_ + 1;
  std::vector<SendEntry> entries(mask + 1);
  std::vector<Sge> pieces(entries.size() * pieces_per_entry_);
  std::vector<std::unique_ptr<std::byte[]>> inline_bytes(entries.size());
  for (uint64_t index = head_; index != tail_; ++index) {
    SendEntry& entry = entries[index & mask] = at(index);
    Sge* moved = pieces.data() + (index & mask) * pieces_per_entry_;
    std::copy(entry.local.begin(), entry.local.end(), moved);
    entry.local = {moved, entry.local.size()};
    inline_bytes[index & mask] = std::move(inline_bytes_[index & mask_]);  // at the same address
  }
  entries_.swap(entries);
  pieces_.swap(pieces);
  inline_bytes_.swap(inline_bytes);
  mask_ = mask;
}

std::byte* SendQueue::inline_bytes_of(uint64_t index) {
  auto& bytes = inline_bytes_[index & mask_];
  if (!bytes) bytes = std::make_unique_for_overwrite<std::byte[]>(max_inline_);
  return bytes.get();
}

// Field by field: to copy an aggregate that was just built elsewhere costs a store-forwarding stall.
SendEntry& SendQueue::fill_next(const SendRequest& request, bool signal_all, uint64_t length) {
  if (tail_ - head_ > mask_) grow();
  SendEntry& entry = at(tail_);
  entry.id = request.id;
  entry.length = length;
  entry.remote_addr = request.remote_addr;
  entry.compare_add = request.compare_add;
  entry.swap = request.swap;
  entry.rkey = request.rkey;
  entry.immediate = request.immediate;
  entry.flags = request.flags | (signal_all ? send_flag::signaled : 0);
  entry.local = {pieces_of(tail_), request.local.size()};
  entry.opcode = request.opcode;
  entry.status = Status::success;
  entry.started = entry.finished = false;
  entry.cursor = 0;
  entry.crc32c = request.crc32c;
  return entry;
}

SendEntry& SendQueue::append_sent(const SendRequest& request, bool signal_all, uint64_t length) {
  SendEntry& entry = fill_next(request, signal_all, length);
  entry.cursor = length;
  next_ = ++tail_;
  return entry;
}

PostResult SendQueue::append(std::span<const SendRequest> batch, bool signal_all, uint32_t reserved) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const SendRequest& request = batch[i];
    if (!allows(request.opcode)) return {i, PostError::unsupported_opcode};
    if (request.local.size() > max_sge_) return {i, PostError::too_many_sges};
    const uint64_t length = total_length(request.local);
    if (length > kMaxMessage) return {i, PostError::message_too_long};
    const bool inlined = request.flags & send_flag::inline_data;
    if (inlined && (length > max_inline_ || request.opcode >= Opcode::read))
      return {i, PostError::inline_too_long};
    if (room() <= reserved) return {i, PostError::full};

    SendEntry& entry = fill_next(request, signal_all, length);
    Sge* pieces = pieces_of(tail_);
    if (inlined) {
      std::byte* copy = inline_bytes_of(tail_);
      gather(request.local, 0, copy, length);
      pieces[0] = {reinterpret_cast<uint64_t>(copy), static_cast<uint32_t>(length), 0};
      entry.local = {pieces, length > 0 ? 1u : 0u};
    } else {
      std::copy(request.local.begin(), request.local.end(), pieces);
    }
    ++tail_;
  }
  return {batch.size(), PostError::none};
}

}  // namespace verbena::soft
