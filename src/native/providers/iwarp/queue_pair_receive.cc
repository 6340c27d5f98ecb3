// The callbacks of the stream: where a peer's bytes are placed, what it may read or change, and which
// requests its responses finish. Rules and statuses are those of every software wire.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"
#include "providers/soft/scatter.h"
#include "util/clock.h"

namespace verbena::iwarp {
namespace {

constexpr uint8_t kInfiniteRnrRetry = 7;

const Refusal kBadResponse{Status::bad_resp_err, TerminateCode::rdmap_stream};

// Adds without carries out of the masked bits: several small counters in one word.
uint64_t add_masked(uint64_t value, uint64_t addend, uint64_t mask) {
  if (mask == 0) return value + addend;
  uint64_t sum = 0, carry = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t total = (value >> bit & 1) + (addend >> bit & 1) + carry;
    sum |= (total & 1) << bit;
    carry = mask >> bit & 1 ? 0 : total >> 1;
  }
  return sum;
}

uint64_t change_word(uint64_t* word, const AtomicRequest& request) {
  const std::atomic_ref<uint64_t> shared(*word);
  if (request.operation == AtomicOperation::fetch_add && request.add_or_swap_mask == 0) {
    return shared.fetch_add(request.add_or_swap);
  }
  uint64_t old = shared.load();
  for (;;) {
    uint64_t wanted = old;
    if (request.operation == AtomicOperation::fetch_add) {
      wanted = add_masked(old, request.add_or_swap, request.add_or_swap_mask);
    } else if (((old ^ request.compare) & request.compare_mask) == 0) {
      wanted = (old & ~request.add_or_swap_mask) | (request.add_or_swap & request.add_or_swap_mask);
    } else {
      return old;
    }
    if (shared.compare_exchange_weak(old, wanted)) return old;
  }
}

}  // namespace

using soft::SendEntry;

// True when bytes were received.
bool IwarpQueuePair::receive() {
  if (!soft::can_respond(state()) || channel_->stream().fault()) return false;
  channel_->stream().revalidate();
  size_t bytes = 0;
  in_stream_ = true;
  const Channel::Io result = channel_->read(bytes);
  in_stream_ = false;
  if (must_close_channel_) {
    close_channel();
  } else if (result == Channel::Io::lost) {
    lose_connection();
  } else if (channel_->stream().was_terminated()) {
    reap();  // the failed request may be known; then this has ended the QP
    lost_.store(true, std::memory_order_relaxed);
    if (soft::can_respond(state())) {
      if (termination_is_known_) {
        fail(termination_);
      } else {
        enter_error();
      }
    }
  } else if (channel_->stream().fault()) {
    fault_since_ns_ = now_ns();
  }
  if (bytes > 0) tune_wakeups();
  return bytes > 0;
}

// During a long READ, or a WRITE that was announced as a run, the number of outstanding bytes is known. A
// wake-up for each TCP segment would cost both ends more than the bytes do, so the kernel gathers them
// (SO_RCVLOWAT). A Verbena peer completes what it has begun or closes the connection, which wakes us too.
void IwarpQueuePair::tune_wakeups() {
  constexpr uint64_t kGathered = 512 * 1024;
  constexpr uint64_t kMargin = 128 * 1024;  // may have been read already, as part of a segment
  if (!channel_ || !channel_->stream_socket().has_socket() || !channel_->stream().agreement().acknowledged)
    return;
  uint64_t due = channel_->stream().announced_bytes();
  if (!pending_.empty() && send_queue_.at(pending_.front()).opcode == Opcode::read) {
    const SendEntry& entry = send_queue_.at(pending_.front());
    due = entry.length - entry.cursor;
  }
  const int wanted = due > kMargin ? static_cast<int>(std::min(due - kMargin, kGathered)) : 1;
  if (wanted == wake_bytes_) return;
  wake_bytes_ = wanted;
  setsockopt(channel_->stream_socket().socket(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

void IwarpQueuePair::take_posted_receive() {
  if (!channel_ || !soft::can_respond(state())) return;
  if (!has_receive_ && !take_receive(receive_)) return;
  has_receive_ = true;
  stalled_.store(false, std::memory_order_relaxed);
  channel_->stream().offer_receive();
}

Refusal IwarpQueuePair::place_message(uint64_t offset, uint32_t length, Placement& out) {
  if (!has_receive_) {
    if (!take_receive(receive_)) {
      stalled_.store(true, std::memory_order_relaxed);
      iwarp_.wake();  // a shared receive queue does not report new receives: the progress thread polls it
      return {.not_ready = true};
    }
    has_receive_ = true;
  }
  if (offset + length > soft::total_length(receive_.local())) {
    receive_status_ = Status::loc_len_err;
    return {Status::rem_inv_req_err, TerminateCode::ddp_too_long};
  }
  if (!pieces_are_valid(receive_.local(), true)) {
    receive_status_ = Status::loc_prot_err;
    return {Status::rem_op_err, TerminateCode::rdmap_stream};
  }
  soft::for_each_run(receive_.local(), offset, length,
                     [&out](std::byte* to, uint64_t, uint64_t n) { out.add(to, n); });
  return {};
}

Refusal IwarpQueuePair::check(uint32_t stag, uint64_t offset, uint64_t length, uint32_t needed,
                              bool tagged) const {
  if ((attributes_.access_flags & needed) == 0) return {Status::rem_inv_req_err, TerminateCode::rdmap_opcode};
  if (length == 0) return {};
  const auto* table = context().regions().entries();
  const soft::RegionEntry* region = nullptr;
  const Status status = soft::check_remote(table, stag, pd(), number(), offset, length, needed, &region);
  if (status == Status::success) return {};
  const soft::RegionEntry* found = soft::find_region(table, stag);
  const bool known = found && soft::is_usable(*found, pd(), number());
  const bool inside = known && soft::covers(*found, offset, length);
  if (!known) return {status, tagged ? TerminateCode::ddp_invalid_stag : TerminateCode::rdmap_invalid_stag};
  if (!inside) return {status, tagged ? TerminateCode::ddp_bounds : TerminateCode::rdmap_bounds};
  return {status, TerminateCode::rdmap_access};
}

Refusal IwarpQueuePair::place_write(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) {
  const Refusal refusal = check(stag, offset, length, access::remote_write, true);
  if (!refusal) out.add(reinterpret_cast<std::byte*>(offset), length);
  return refusal;
}

Refusal IwarpQueuePair::place_response(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) {
  if (pending_.empty()) return kBadResponse;
  const uint64_t index = pending_.front();
  SendEntry& entry = send_queue_.at(index);
  if (entry.opcode != Opcode::read || stag != static_cast<uint32_t>(index) || offset != entry.cursor ||
      length > entry.length - entry.cursor) {
    return kBadResponse;
  }
  if (!local_is_valid(index, true)) {
    entry.status = Status::loc_prot_err;  // its region was closed: the bytes are discarded
    return {};
  }
  soft::for_each_run(send_queue_.local(index), offset, length,
                     [&out](std::byte* to, uint64_t, uint64_t n) { out.add(to, n); });
  return {};
}

Refusal IwarpQueuePair::message_arrived(uint64_t length, bool solicited, const uint32_t* immediate) {
  has_receive_ = false;
  complete_receive(receive_, Status::success, static_cast<uint32_t>(length), immediate, solicited);
  return {};
}

Refusal IwarpQueuePair::immediate_arrived(uint32_t immediate, uint64_t written, bool solicited) {
  Placement nothing;
  if (const Refusal refusal = place_message(0, 0, nothing)) return refusal;
  has_receive_ = false;
  complete_receive(receive_, Status::success, static_cast<uint32_t>(written), &immediate, solicited,
                   WcOpcode::recv_rdma_with_imm);
  return {};
}

Refusal IwarpQueuePair::response_arrived(uint32_t length, bool last) {
  if (pending_.empty()) return kBadResponse;
  SendEntry& entry = send_queue_.at(pending_.front());
  entry.cursor += length;
  if (last != (entry.cursor == entry.length)) return kBadResponse;
  if (!last) return {};
  if (entry.status != Status::success) halted_at_ = std::min(halted_at_, pending_.front());
  entry.finished = true;
  pending_.pop_front();
  return {};
}

Refusal IwarpQueuePair::atomic_answered(uint32_t id, uint64_t original) {
  if (pending_.empty() || id != static_cast<uint32_t>(pending_.front())) return kBadResponse;
  const uint64_t index = pending_.front();
  SendEntry& entry = send_queue_.at(index);
  if (entry.opcode <= Opcode::read) return kBadResponse;
  if (local_is_valid(index, true)) {
    soft::scatter(send_queue_.local(index), 0, reinterpret_cast<const std::byte*>(&original),
                  sizeof original);
    entry.finished = true;
  } else {
    finish(index, Status::loc_prot_err);
  }
  pending_.pop_front();
  return {};
}

Refusal IwarpQueuePair::read_requested(const ReadRequest& request) {
  return check(request.source_stag, request.source_offset, request.length, access::remote_read, false);
}

Refusal IwarpQueuePair::execute_atomic(const AtomicRequest& request, uint64_t& original) {
  const bool known =
      request.operation == AtomicOperation::fetch_add || request.operation == AtomicOperation::compare_swap;
  if (!known) return {Status::rem_inv_req_err, TerminateCode::rdmap_opcode};
  if ((attributes_.access_flags & access::remote_atomic) == 0) {
    return {Status::rem_inv_req_err, TerminateCode::rdmap_opcode};
  }
  if (request.offset % sizeof(uint64_t) != 0) return {Status::rem_inv_req_err, TerminateCode::rdmap_stream};
  const Refusal refusal = check(request.stag, request.offset, sizeof(uint64_t), access::remote_atomic, false);
  if (!refusal) original = change_word(reinterpret_cast<uint64_t*>(request.offset), request);
  return refusal;
}

const std::byte* IwarpQueuePair::source(uint32_t stag, uint64_t offset, uint32_t length) {
  if (check(stag, offset, length, access::remote_read, false)) return nullptr;
  return reinterpret_cast<const std::byte*>(offset);
}

void IwarpQueuePair::acknowledged(uint64_t executed) {
  settled_ = std::max(settled_, send_queue_.head());
  for (; settled_ < emit_; ++settled_) {
    SendEntry& entry = send_queue_.at(settled_);
    if (number_of(settled_) > executed) return;
    if (entry.opcode < Opcode::read) entry.finished = true;
  }
}

// The peer dropped everything behind `executed`; it is sent again when the peer is ready.
void IwarpQueuePair::peer_not_ready(uint64_t executed, uint8_t rnr_timer) {
  const uint64_t emitted = emit_;
  emit_ = settled_;
  for (uint64_t index = emit_; index <= emitted && index != send_queue_.tail(); ++index) {
    SendEntry& entry = send_queue_.at(index);
    // Of a WRITE with immediate, the data may have arrived and only the immediate may be missing.
    const bool is_announcement = index == emit_ && index < emitted &&
                                 entry.opcode == Opcode::write_with_imm && entry.length > 0 &&
                                 number_of(index) == executed + 1;
    if (is_announcement) continue;
    entry.started = false;
    entry.cursor = 0;
  }
  while (!pending_.empty() && pending_.back() >= emit_) pending_.pop_back();
  channel_->stream().rewind(executed);
  peer_not_ready_ = true;
  if (attributes_.rnr_retry == kInfiniteRnrRetry) return;
  if (attributes_.rnr_retry == 0) return finish(emit_, Status::rnr_retry_exc_err);
  rnr_deadline_ns_ = now_ns() + attributes_.rnr_retry * soft::rnr_delay_ns(rnr_timer);
  iwarp_.wake();  // to start the RNR timer
}

void IwarpQueuePair::peer_ready() {
  if (!peer_not_ready_ || is_halted()) return;
  peer_not_ready_ = false;
  rnr_deadline_ns_ = kNever;
  channel_->stream().resume();
}

void IwarpQueuePair::request_failed(uint64_t request, Status status) {
  for (uint64_t index = send_queue_.head(); index != send_queue_.tail(); ++index) {
    SendEntry& entry = send_queue_.at(index);
    if (!entry.started || number_of(index) < request) continue;
    if (!entry.finished) finish(index, status);
    return;
  }
}

void IwarpQueuePair::terminated(const Termination& termination) {
  // Only a failed READ can be identified: everything else that was sent has completed. A stream error
  // concerns all requests.
  const bool was_read = termination.segment && !termination.segment->tagged &&
                        termination.segment->queue == static_cast<uint32_t>(Queue::read_request);
  termination_ = status_of(termination.code);
  end_code_.store(error_code_of(termination_), std::memory_order_relaxed);
  termination_is_known_ = was_read || termination_ == Status::retry_exc_err;
}

}  // namespace verbena::iwarp
