// The send side of the shm queue pair: puts messages and staged operations into the peer's ring, and finishes
// requests when the peer acknowledges their slots.
#include <algorithm>
#include <cstring>

#include "providers/shm/context.h"
#include "providers/shm/queue_pair.h"
#include "providers/soft/scatter.h"

namespace verbena::shm {
namespace {

// A polling thread checks this many times for a message, which would carry the acknowledgement, before it
// reads the acknowledgement from the ring's header. This takes about a microsecond.
constexpr uint32_t kIdleChecks = 40;

}  // namespace

using soft::SendEntry;

void ShmQueuePair::transmit() {
  while (!is_halted() && may_transmit() && send_queue_.next() != send_queue_.tail()) {
    const uint64_t index = send_queue_.next();
    if (start(index) == Step::blocked) break;
    const SendEntry& entry = send_queue_.at(index);
    if (entry.length >= kFragmentBytes)
      end_access();  // so that a peer which closes a region waits for one long request at most
    if (entry.finished && entry.status != Status::success) halt(index);
    send_queue_.advance_next();
  }
  end_access();
  const bool blocked = !is_halted() && may_transmit() && send_queue_.next() != send_queue_.tail();
  if (blocked != is_blocked()) {
    blocked_.store(blocked, std::memory_order_relaxed);
    if (blocked) shm_.wake();  // perhaps no thread polls: the progress thread retries soon
  }
  // An entry can fail before all of it is sent: advance past it, so that reap() reports it.
  while (is_halted() && send_queue_.next() <= halted_at_) send_queue_.advance_next();
  reap();
  check_doorbell();
}

// The fast path for a short SEND: copies it directly into a slot and writes its queue entry afterwards.
// False: the caller takes the general path, which also reports errors.
bool ShmQueuePair::send_at_once(const SendRequest& request, bool signal_all, uint32_t reserved) {
  if (request.opcode != Opcode::send || request.local.size() != 1) return false;
  const Sge& piece = request.local[0];
  if (piece.length > kInSlotBytes || send_queue_.next() != send_queue_.tail() || is_halted() ||
      !may_transmit() || !out_ || send_queue_.room() <= reserved) {
    return false;
  }
  const std::byte* bytes = nullptr;
  if (!(request.flags & send_flag::inline_data)) {
    bytes = context().regions().resolve(pd(), piece, false);
  } else if (piece.length <= send_queue_.max_inline()) {
    bytes = reinterpret_cast<const std::byte*>(piece.addr);
  }
  Slot* slot = out_->try_claim();
  if (!bytes || !slot ||
      out_->header().responder.load(std::memory_order_acquire) == static_cast<uint32_t>(Responder::gone)) {
    return false;
  }
  soft::copy_bytes(slot->bytes, bytes, piece.length);
  SlotHeader& header = slot->header;
  header.acknowledged = in_->consumed();
  header.length = piece.length;
  header.kind = SlotKind::send;
  header.flags = static_cast<uint8_t>(slot_flag::first | slot_flag::last | slot_flag::in_slot |
                                      (request.flags & send_flag::solicited ? slot_flag::solicited : 0) |
                                      (is_polled() ? 0 : slot_flag::wants_ack));
  header.rnr_retry = attributes_.rnr_retry;
  publish(slot, send_queue_.tail());
  send_queue_.append_sent(request, signal_all, piece.length);
  check_doorbell();
  return true;
}

void ShmQueuePair::advance() {
  const bool arrived = in_ && receive();
  if (!soft::can_respond(state())) return check_doorbell();
  // A received message is returned to the polling thread before our own requests are checked: the thread may
  // reply to it at once, and polls again anyway. The next call always checks the requests.
  if (arrived && is_polled() && !send_side_waits_) {
    send_side_waits_ = true;
    return check_doorbell();
  }
  send_side_waits_ = false;
  if (out_ && finished_slots_ < out_->produced()) {
    // While a thread busy-polls, the acknowledgement usually comes with the peer's next message. Reading the
    // ring's header in each call would needlessly take the cache line away from the peer.
    if (!arrived && (!is_polled() || ++idle_checks_ > kIdleChecks)) {
      if (!read_acknowledgements()) return fail(Status::bad_resp_err);
      fail_if_peer_gone();
    }
    finish_acknowledged();
  }
  if (send_queue_.next() != send_queue_.tail()) return transmit();
  reap();
  check_doorbell();
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
  if (fail_if_peer_gone()) return finish(entry, Status::retry_exc_err);
  if (entry.opcode == Opcode::send || entry.opcode == Opcode::send_with_imm) return send_message(index);
  const uint32_t responder = out_->header().responder.load(std::memory_order_acquire);
  return responder == static_cast<uint32_t>(Responder::ready) ? one_sided(index) : Step::blocked;
}

// True if the peer's QP is gone. Slots that it consumed before still complete; the request of the first slot
// that it did not consume fails.
bool ShmQueuePair::fail_if_peer_gone() {
  const uint32_t responder = out_->header().responder.load(std::memory_order_acquire);
  if (responder != static_cast<uint32_t>(Responder::gone)) return false;
  if (read_acknowledgements()) finish_acknowledged();
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
  if (read_acknowledgements()) finish_acknowledged();
  return is_halted() ? nullptr : out_->try_claim();
}

// Fields are written in place: building a header elsewhere and copying it costs a store-forwarding stall.
SlotHeader& ShmQueuePair::begin_slot(Slot* slot, const SendEntry& entry, SlotKind kind, uint32_t length) {
  SlotHeader& header = slot->header;
  header.acknowledged = in_ ? in_->consumed() : 0;
  header.payload_at = 0;
  header.length = length;
  header.immediate = entry.immediate;
  header.kind = kind;
  header.flags = is_polled()
                     ? 0
                     : slot_flag::wants_ack;  // a polling thread sees the acknowledgement without being woken
  header.rnr_retry = attributes_.rnr_retry;
  header.opcode = static_cast<uint8_t>(entry.opcode);
  header.rkey = entry.rkey;
  return header;
}

// Publishes a filled slot of entry `index`; the caller sets the other fields of the SentSlot.
ShmQueuePair::SentSlot& ShmQueuePair::publish(Slot* slot, uint64_t index) {
  const SlotHeader& header = slot->header;
  SentSlot& sent = sent_[out_->produced() % kSlotCount];
  sent.entry = index;
  sent.offset = 0;
  sent.payload_at = header.payload_at;
  sent.length = header.length;
  sent.kind = header.kind;
  sent.has_payload = false;
  sent.ends_entry = true;
  out_->publish(slot);
  idle_checks_ = 0;
  wake_pending_ = true;
  return sent;
}

ShmQueuePair::Step ShmQueuePair::send_message(uint64_t index) {
  SendEntry& entry = send_queue_.at(index);
  const bool in_slot = entry.length <= kInSlotBytes;
  do {
    Slot* slot = claim_slot();
    if (!slot) return Step::blocked;
    const auto length =
        static_cast<uint32_t>(std::min<uint64_t>(entry.length - entry.cursor, kFragmentBytes));
    const bool last = entry.cursor + length == entry.length;
    std::byte* payload = slot->bytes;
    uint64_t payload_at = 0;
    if (!in_slot && !(payload = out_->try_claim_payload(length, &payload_at))) return Step::blocked;
    soft::gather(send_queue_.local(index), entry.cursor, payload, length);
    SlotHeader& header = begin_slot(slot, entry, SlotKind::send, length);
    header.payload_at = payload_at;
    const bool immediate = entry.opcode == Opcode::send_with_imm,
               solicited = entry.flags & send_flag::solicited;
    header.flags |= static_cast<uint8_t>((in_slot ? slot_flag::in_slot : 0) | (last ? slot_flag::last : 0) |
                                         (entry.cursor == 0 ? slot_flag::first : 0) |
                                         (immediate ? slot_flag::has_immediate : 0) |
                                         (solicited ? slot_flag::solicited : 0));
    SentSlot& sent = publish(slot, index);
    sent.has_payload = !in_slot;
    sent.ends_entry = last;
    entry.cursor += length;
  } while (entry.cursor < entry.length);
  return Step::done;
}

ShmQueuePair::Step ShmQueuePair::send_immediate(uint64_t index) {
  const SendEntry& entry = send_queue_.at(index);
  Slot* slot = claim_slot();
  if (!slot) return Step::blocked;
  SlotHeader& header = begin_slot(slot, entry, SlotKind::immediate_only, static_cast<uint32_t>(entry.length));
  const bool solicited = entry.flags & send_flag::solicited;
  header.flags |= static_cast<uint8_t>(slot_flag::first | slot_flag::last | slot_flag::has_immediate |
                                       (solicited ? slot_flag::solicited : 0));
  publish(slot, index);
  return Step::done;
}

// For remote memory that this process cannot access itself: the peer executes the operation, the ring's
// payload space carries the bytes, and the acknowledgement of the slot completes the request.
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
    uint64_t payload_at = 0;
    std::byte* payload = out_->try_claim_payload(length, &payload_at);
    if (!payload) return Step::blocked;
    if (writes) soft::gather(send_queue_.local(index), entry.cursor, payload, length);
    const StagedOperands operands{entry.remote_addr + entry.cursor, entry.compare_add, entry.swap};
    std::memcpy(slot->bytes, &operands, sizeof operands);
    begin_slot(slot, entry, kind, length).payload_at = payload_at;
    SentSlot& sent = publish(slot, index);
    sent.offset = entry.cursor;
    sent.has_payload = true;
    entry.cursor += length;
    sent.ends_entry = entry.cursor == entry.length && entry.opcode != Opcode::write_with_imm;
  }
  return entry.opcode == Opcode::write_with_imm ? send_immediate(index) : Step::done;
}

// Reads how many slots the peer has consumed, and whether one has failed. False: the values are impossible.
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
  finish_acknowledged();
  const uint64_t index = sent_[slot % kSlotCount].entry;
  finish(send_queue_.at(index), static_cast<Status>(failed));
  halt(index);
  return true;
}

void ShmQueuePair::finish_acknowledged() {
  for (; finished_slots_ < out_->acknowledged(); ++finished_slots_) {
    const SentSlot& sent = sent_[finished_slots_ % kSlotCount];
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
    if (sent.has_payload) out_->release_payload(finished_slots_);
    if (sent.ends_entry) entry.finished = true;
  }
}

void ShmQueuePair::check_doorbell() {
  if (!wake_pending_ || !out_) return;
  wake_pending_ = false;
  // The peer arms its doorbell, then checks the ring; this thread fills the ring, then checks the doorbell.
  // Without the fence each could miss the other's store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& armed = out_->header().doorbell_armed;
  if (armed.load(std::memory_order_relaxed) && armed.exchange(0, std::memory_order_relaxed)) {
    doorbell_pending_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace verbena::shm
