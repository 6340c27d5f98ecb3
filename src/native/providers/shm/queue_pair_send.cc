// Requests out: messages and staged operations into the ring, and what their acknowledgements finish.
#include <algorithm>
#include <cstring>

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"
#include "providers/soft/scatter.h"

namespace verbena::shm {
namespace {

// How often a spinner looks for an answer before it asks for the bare acknowledgement: about a microsecond.
constexpr uint32_t kPatientLooks = 40;

}  // namespace

using soft::SendEntry;

void ShmQueuePair::transmit() {
  while (!is_halted() && may_transmit() && send_queue_.next() != send_queue_.tail()) {
    const uint64_t index = send_queue_.next();
    if (start(index) == Step::blocked) break;
    const SendEntry& entry = send_queue_.at(index);
    if (entry.finished && entry.status != Status::success) halt(index);
    send_queue_.advance_next();
  }
  end_access();
  const bool blocked = !is_halted() && may_transmit() && send_queue_.next() != send_queue_.tail();
  if (blocked != is_blocked()) {
    blocked_.store(blocked, std::memory_order_relaxed);
    if (blocked) shm_.wake();  // nobody may be polling: the progress thread looks again soon
  }
  // An entry may fail while it is still being sent: hand it over, so that it is reported.
  while (is_halted() && send_queue_.next() <= halted_at_) send_queue_.advance_next();
  reap();
  check_bell();
}

void ShmQueuePair::advance() {
  const bool arrived = in_ && receive();
  if (!soft::can_respond(state())) return check_bell();
  // A message is handed to its poller before our own requests are looked after: the poller may be about to
  // answer it, and comes back. Never twice in a row.
  if (arrived && is_polled() && !send_side_waits_) {
    send_side_waits_ = true;
    return check_bell();
  }
  send_side_waits_ = false;
  if (out_ && settled_ < out_->produced()) {
    // While somebody spins, the acknowledgement mostly comes with the peer's next message: looking at the
    // peer's own line each time would take it away from the peer for nothing.
    if (!arrived && (!is_polled() || ++idle_looks_ > kPatientLooks)) {
      if (!read_acknowledgements()) return fail(Status::bad_resp_err);
      give_up_if_gone();
    }
    settle();
  }
  if (send_queue_.next() != send_queue_.tail()) return transmit();
  reap();
  check_bell();
}

ShmQueuePair::Step ShmQueuePair::finish(SendEntry& entry, Status status) {
  entry.status = status;
  entry.finished = true;
  return Step::done;
}

ShmQueuePair::Step ShmQueuePair::start(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  if (!local_is_valid(index, entry.opcode >= Opcode::read)) return finish(entry, Status::loc_prot_err);
  if (!out_) return unreachable_ ? finish(entry, Status::retry_exc_err) : Step::blocked;
  if (give_up_if_gone()) return finish(entry, Status::retry_exc_err);
  if (entry.opcode == Opcode::send || entry.opcode == Opcode::send_with_imm) return send_message(index);
  const uint32_t responder = out_->header().responder.load(std::memory_order_acquire);
  return responder == static_cast<uint32_t>(Responder::ready) ? one_sided(index) : Step::blocked;
}

// True when the peer's QP will never answer again. What it took before still counts; the first slot that it
// did not take fails its request.
bool ShmQueuePair::give_up_if_gone() {
  const uint32_t responder = out_->header().responder.load(std::memory_order_acquire);
  if (responder != static_cast<uint32_t>(Responder::gone)) return false;
  if (read_acknowledgements()) settle();
  if (out_->outstanding() > 0 && !is_halted()) {
    const uint64_t first = sent_[out_->acknowledged() % kSlotCount].entry;
    finish(send_queue_.at(first), Status::retry_exc_err);
    halt(first);
  }
  return true;
}

Slot* ShmQueuePair::claim_slot() {
  Slot* slot = out_->try_claim();
  if (slot) return slot;
  if (read_acknowledgements()) settle();
  return is_halted() ? nullptr : out_->try_claim();
}

void ShmQueuePair::publish(Slot* slot, const SlotHeader& header, const SentSlot& sent) {
  const uint64_t position = out_->publish(slot, header);
  sent_[position % kSlotCount] = sent;
  idle_looks_ = 0;
  touched_ = true;
}

ShmQueuePair::Step ShmQueuePair::send_message(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  const bool in_slot = entry.length <= kInSlotBytes;
  const bool wants_ack = !is_polled();  // who spins sees the acknowledgement without being woken
  do {
    Slot* slot = claim_slot();
    if (!slot) return Step::blocked;
    const auto length =
        static_cast<uint32_t>(std::min<uint64_t>(entry.length - entry.cursor, kFragmentBytes));
    SlotHeader header{.acknowledged = in_ ? in_->consumed() : 0,
                      .payload_at = 0,
                      .length = length,
                      .immediate = entry.immediate,
                      .kind = SlotKind::send,
                      .flags = 0,
                      .rnr_retry = attributes_.rnr_retry,
                      .opcode = static_cast<uint8_t>(entry.opcode),
                      .rkey = 0};
    std::byte* payload = slot->bytes;
    if (in_slot) {
      header.flags |= slot_flag::in_slot;
    } else if (payload = out_->try_claim_payload(length, &header.payload_at); !payload) {
      return Step::blocked;
    }
    soft::gather(send_queue_.local(index), entry.cursor, payload, length);
    const bool last = entry.cursor + length == entry.length;
    if (entry.cursor == 0) header.flags |= slot_flag::first;
    if (last) header.flags |= slot_flag::last;
    if (entry.opcode == Opcode::send_with_imm) header.flags |= slot_flag::has_immediate;
    if (entry.flags & send_flag::solicited) header.flags |= slot_flag::solicited;
    if (wants_ack) header.flags |= slot_flag::wants_ack;
    publish(slot, header,
            {.entry = index,
             .payload_at = header.payload_at,
             .length = length,
             .has_payload = !in_slot,
             .ends_entry = last});
    entry.cursor += length;
  } while (entry.cursor < entry.length);
  return Step::done;
}

ShmQueuePair::Step ShmQueuePair::send_immediate(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  Slot* slot = claim_slot();
  if (!slot) return Step::blocked;
  const bool solicited = entry.flags & send_flag::solicited;
  const auto flags = static_cast<uint8_t>(slot_flag::first | slot_flag::last | slot_flag::has_immediate |
                                          slot_flag::wants_ack | (solicited ? slot_flag::solicited : 0));
  publish(slot,
          {.acknowledged = in_ ? in_->consumed() : 0,
           .payload_at = 0,
           .length = static_cast<uint32_t>(entry.length),
           .immediate = entry.immediate,
           .kind = SlotKind::immediate_only,
           .flags = flags,
           .rnr_retry = attributes_.rnr_retry,
           .opcode = static_cast<uint8_t>(entry.opcode),
           .rkey = 0},
          {.entry = index, .kind = SlotKind::immediate_only, .ends_entry = true});
  return Step::done;
}

// Memory that can't be reached from here: the peer's progress does the access, the ring's payload space
// carries the bytes, and the slot's acknowledgement says that it is done.
ShmQueuePair::Step ShmQueuePair::send_staged(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  const bool writes = entry.opcode == Opcode::write || entry.opcode == Opcode::write_with_imm;
  const SlotKind kind = writes                         ? SlotKind::staged_write
                        : entry.opcode == Opcode::read ? SlotKind::staged_read
                                                       : SlotKind::staged_atomic;
  while (entry.cursor < entry.length) {
    Slot* slot = claim_slot();
    if (!slot) return Step::blocked;
    const auto length =
        static_cast<uint32_t>(std::min<uint64_t>(entry.length - entry.cursor, kFragmentBytes));
    SlotHeader header{.acknowledged = in_ ? in_->consumed() : 0,
                      .payload_at = 0,
                      .length = length,
                      .immediate = 0,
                      .kind = kind,
                      .flags = slot_flag::wants_ack,
                      .rnr_retry = 0,
                      .opcode = static_cast<uint8_t>(entry.opcode),
                      .rkey = entry.rkey};
    std::byte* payload = out_->try_claim_payload(length, &header.payload_at);
    if (!payload) return Step::blocked;
    if (writes) soft::gather(send_queue_.local(index), entry.cursor, payload, length);
    const StagedOperands operands{entry.remote_addr + entry.cursor, entry.compare_add, entry.swap};
    std::memcpy(slot->bytes, &operands, sizeof operands);
    const bool ends = entry.cursor + length == entry.length && entry.opcode != Opcode::write_with_imm;
    publish(slot, header,
            {.entry = index,
             .offset = entry.cursor,
             .payload_at = header.payload_at,
             .length = length,
             .kind = kind,
             .has_payload = true,
             .ends_entry = ends});
    entry.cursor += length;
  }
  return entry.opcode == Opcode::write_with_imm ? send_immediate(index) : Step::done;
}

// Reads the owner's side of the ring. False: what stands there is impossible.
bool ShmQueuePair::read_acknowledgements() {
  RingHeader& header = out_->header();
  const uint32_t failed = header.failed_status.load(std::memory_order_acquire);
  if (!out_->acknowledge(header.consumed.load(std::memory_order_acquire))) return false;
  if (failed == 0 || is_halted()) return true;
  const uint64_t slot = header.failed_slot.load(std::memory_order_relaxed);
  if (failed > static_cast<uint32_t>(Status::tm_rndv_incomplete) || slot != out_->acknowledged() ||
      slot >= out_->produced()) {
    return false;
  }
  settle();
  const uint64_t index = sent_[slot % kSlotCount].entry;
  finish(send_queue_.at(index), static_cast<Status>(failed));
  halt(index);
  return true;
}

void ShmQueuePair::settle() {
  for (; settled_ < out_->acknowledged(); ++settled_) {
    const SentSlot& sent = sent_[settled_ % kSlotCount];
    SendEntry& entry = send_queue_.at(sent.entry);
    if (sent.kind == SlotKind::staged_read || sent.kind == SlotKind::staged_atomic) {
      // The region may have been closed since the request was posted.
      if (local_is_valid(sent.entry, true)) {
        soft::scatter(send_queue_.local(sent.entry), sent.offset, out_->payload(sent.payload_at),
                      sent.length);
      } else {
        entry.status = Status::loc_prot_err;
      }
    }
    if (sent.has_payload) out_->release_payload(settled_);
    if (sent.ends_entry) entry.finished = true;
  }
}

void ShmQueuePair::check_bell() {
  if (!touched_ || !out_) return;
  touched_ = false;
  // The peer arms its bell, then looks at the ring; we fill the ring, then look at the bell. Without the
  // fence both could miss each other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& armed = out_->header().bell_armed;
  if (armed.load(std::memory_order_relaxed) && armed.exchange(0, std::memory_order_relaxed)) {
    bell_pending_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace verbena::shm
