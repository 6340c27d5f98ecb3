// Receiving: messages into posted receives, and staged operations for a peer that cannot access our memory.
// Another process writes the slots: every field is copied once, then checked.
#include <atomic>
#include <cstring>

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"
#include "providers/soft/scatter.h"
#include "util/clock.h"

namespace verbena::shm {

// True when at least one slot was taken.
bool ShmQueuePair::receive() {
  if (!soft::can_respond(state())) return false;
  if (in_->header().fault.load(std::memory_order_relaxed) != 0) {
    enter_error();
    return false;
  }
  bool taken = false;
  while (!refused_ && soft::can_respond(state())) {
    Slot* slot = in_->peek();
    if (!slot || !take_slot(slot)) break;
    in_->release();
    taken = true;
  }
  if (taken && in_) in_->publish_consumed();
  return taken;
}

bool ShmQueuePair::take_slot(Slot* slot) {
  const SlotHeader header = slot->header;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the copy is what is checked and used
  if (out_ && !out_->acknowledge(header.acknowledged)) return fault(Status::rem_inv_req_err);
  if (header.flags & slot_flag::wants_ack) wake_pending_ = true;
  switch (header.kind) {
    case SlotKind::send:
      return take_message(slot, header);
    case SlotKind::immediate_only:
      return take_immediate(header);
    case SlotKind::staged_write:
    case SlotKind::staged_read:
    case SlotKind::staged_atomic:
      return take_staged(slot, header);
  }
  return fault(Status::rem_inv_req_err);
}

// Takes a posted receive for the front slot. False: there is none yet, or the slot was refused.
bool ShmQueuePair::take_receive_for(const SlotHeader& header) {
  if (take_receive(receive_)) {
    receive_offset_ = 0;
    if (is_stalled()) {
      stalled_.store(false, std::memory_order_relaxed);
      in_->header().stalled.store(0, std::memory_order_relaxed);
    }
    return true;
  }
  if (!is_stalled()) {
    stalled_since_ns_ = now_ns();
    stalled_.store(true, std::memory_order_relaxed);
    in_->header().stalled.store(1, std::memory_order_relaxed);
    shm_.wake();  // the progress thread runs the timer from now on
  }
  constexpr uint8_t kInfiniteRnrRetry = 7;
  const uint64_t retry_time_ns = soft::rnr_delay_ns(attributes_.min_rnr_timer) * header.rnr_retry;
  if (header.rnr_retry < kInfiniteRnrRetry && now_ns() - stalled_since_ns_ >= retry_time_ns) {
    stalled_.store(false, std::memory_order_relaxed);
    refuse(Status::rnr_retry_exc_err);
  }
  return false;
}

bool ShmQueuePair::take_message(Slot* slot, const SlotHeader& header) {
  const bool first = header.flags & slot_flag::first, last = header.flags & slot_flag::last;
  const std::byte* payload = in_->payload(slot, header);
  if (!payload || first == receiving_) return fault(Status::rem_inv_req_err);
  if (first) {
    if (!take_receive_for(header)) return false;
    receiving_ = true;
  }
  if (receive_offset_ + header.length > soft::total_length(receive_.local())) {
    receiving_ = false;
    complete_receive(receive_, Status::loc_len_err, 0, nullptr, false);
    return fault(Status::rem_inv_req_err);
  }
  if (!pieces_are_valid(receive_.local(), true)) {
    receiving_ = false;
    complete_receive(receive_, Status::loc_prot_err, 0, nullptr, false);
    return fault(Status::rem_op_err);
  }
  soft::scatter(receive_.local(), receive_offset_, payload, header.length);
  receive_offset_ += header.length;
  if (last) {
    receiving_ = false;
    complete_receive(receive_, Status::success, static_cast<uint32_t>(receive_offset_),
                     header.flags & slot_flag::has_immediate ? &header.immediate : nullptr,
                     header.flags & slot_flag::solicited);
  }
  return true;
}

bool ShmQueuePair::take_immediate(const SlotHeader& header) {
  if (receiving_) return fault(Status::rem_inv_req_err);
  if (!take_receive_for(header)) return false;
  complete_receive(receive_, Status::success, header.length, &header.immediate,
                   header.flags & slot_flag::solicited, WcOpcode::recv_rdma_with_imm);
  return true;
}

bool ShmQueuePair::take_staged(Slot* slot, const SlotHeader& header) {
  StagedOperands operands;
  std::memcpy(&operands, slot->bytes, sizeof operands);
  std::byte* payload = in_->payload(slot, header);
  if (!payload || header.opcode > static_cast<uint8_t>(Opcode::fetch_add))
    return fault(Status::rem_inv_req_err);
  const auto opcode = static_cast<Opcode>(header.opcode);
  const uint32_t needed = soft::remote_access_of(opcode);
  const bool atomic = needed == access::remote_atomic;
  if (needed == 0 || (attributes_.access_flags & needed) == 0) return fault(Status::rem_inv_req_err);
  if (atomic && (header.length != sizeof(uint64_t) || operands.remote_addr % sizeof(uint64_t) != 0)) {
    return fault(Status::rem_inv_req_err);
  }
  const soft::RegionEntry* region = nullptr;
  const Status status = soft::check_remote(context().regions().entries(), header.rkey, pd(), number(),
                                           operands.remote_addr, header.length, needed, &region);
  if (status != Status::success) return fault(status);

  auto* memory = reinterpret_cast<std::byte*>(operands.remote_addr);
  if (atomic) {
    const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(memory));
    uint64_t old = operands.compare_add;
    if (opcode == Opcode::fetch_add) {
      old = word.fetch_add(operands.compare_add);
    } else {
      word.compare_exchange_strong(old, operands.swap);
    }
    std::memcpy(payload, &old, sizeof old);
  } else if (needed == access::remote_read) {
    std::memcpy(payload, memory, header.length);
  } else {
    std::memcpy(memory, payload, header.length);
  }
  return true;
}

// The front slot is not taken, and the sender receives the status.
void ShmQueuePair::refuse(Status for_sender) {
  RingHeader& header = in_->header();
  refused_ = true;
  wake_pending_ = true;
  in_->publish_consumed();
  header.failed_slot.store(in_->consumed(), std::memory_order_relaxed);
  header.failed_status.store(static_cast<uint32_t>(for_sender), std::memory_order_release);
}

bool ShmQueuePair::fault(Status for_sender) {
  refuse(for_sender);
  enter_error();
  return false;
}

}  // namespace verbena::shm
