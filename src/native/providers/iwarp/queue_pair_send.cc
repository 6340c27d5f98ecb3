// Sending requests: chooses the next one, cuts it into segments whose payload stays in registered memory, and
// checks the payload again when a segment could not be sent at once.
#include <algorithm>

#include "providers/iwarp/context.h"
#include "providers/iwarp/queue_pair.h"
#include "providers/soft/scatter.h"
#include "util/clock.h"

namespace verbena::iwarp {
namespace {

constexpr size_t kBatchBytes = 1024 * 1024;
constexpr uint64_t kLongBytes = 256 * 1024;  // of a request that holds the lock for a while

bool expects_answer(Opcode opcode) { return opcode >= Opcode::read; }

bool has_immediate(Opcode opcode) {
  return opcode == Opcode::write_with_imm || opcode == Opcode::send_with_imm;
}

}  // namespace

using soft::SendEntry;

void IwarpQueuePair::transmit() {
  pump();
  read_after_send();
  reap();
}

// Reads once what arrived during a long request. Not in a loop: the posting thread must not serve the peer
// without end.
void IwarpQueuePair::read_after_send() {
  if (!reads_after_send_.load(std::memory_order_relaxed)) return;
  if (channel_) receive();
  pump();
  reads_after_send_.store(false, std::memory_order_relaxed);
  watch();
}

bool IwarpQueuePair::is_long_request() const {
  if (emit_ == send_queue_.tail()) return false;
  const SendEntry& entry = send_queue_.at(emit_);
  return !expects_answer(entry.opcode) && entry.length - entry.cursor > kLongBytes;
}

void IwarpQueuePair::advance() {
  bool arrived = false;
  if (channel_ && (readable_.load(std::memory_order_relaxed) || may_poller_read())) {
    readable_.store(false, std::memory_order_relaxed);
    arrived = receive();
  }
  if (stalled_.load(std::memory_order_relaxed)) take_posted_receive();
  // A polling thread mostly replies at once, so the acknowledgement travels with the reply. It is never
  // deferred twice in a row.
  defer_ack_ = arrived && is_polled();
  pump();
  defer_ack_ = false;
  read_after_send();
  reap();
}

void IwarpQueuePair::pump() {
  if (!channel_) {
    if (unreachable_) fail_unreachable();
    return;
  }
  if (output_is_stale_ &&
      !channel_->check_output([this](const OutSegment& s) { return is_source_valid(s); })) {
    // A segment was sent in part and the rest of its memory is gone.
    return lose_connection();
  }
  const auto on_sent = [this](const OutSegment& segment) {
    if (!segment.ends_request || channel_->stream().agreement().acknowledged) return;
    SendEntry& entry = send_queue_.at(segment.request);
    if (!expects_answer(entry.opcode)) entry.finished = true;
  };
  if (is_long_request()) {
    // The peer acknowledges earlier requests meanwhile. That would wake the progress thread, which would only
    // wait for our lock.
    reads_after_send_.store(true, std::memory_order_relaxed);
    watch();
  }
  while (channel_->has_output() || fill()) {
    const Channel::Io result = channel_->flush(on_sent);
    if (result == Channel::Io::lost) return lose_connection();
    if (result == Channel::Io::blocked) {
      reads_after_send_.store(false, std::memory_order_relaxed);
      output_is_stale_ = true;
      advance_send_queue();
      return watch();
    }
  }
  output_is_stale_ = false;
  advance_send_queue();
  if (channel_->stream().fault() && !channel_->stream().has_pending_responses()) return end_fault();
  watch();
}

// Fills the batch in order of urgency. False: there is nothing to send.
bool IwarpQueuePair::fill() {
  Stream& stream = channel_->stream();
  if (!stream.may_send() || !soft::can_respond(state()) || (is_paused() && !stream.fault())) return false;
  size_t bytes = 0;
  const auto add = [&](auto compose) {
    OutSegment* segment = channel_->claim();
    if (!segment || (bytes >= kBatchBytes && !stream.is_in_run()) || !compose(*segment)) return false;
    bytes += channel_->commit();
    return true;
  };
  while (add([&](OutSegment& out) { return stream.compose_control(out); })) continue;
  // Payload that is not copied is read when it is sent: the next READ must not be answered before that.
  OutSegment::Source source = OutSegment::Source::copied;
  const auto respond = [&](OutSegment& out) {
    const bool is_composed = stream.compose_response(out, channel_->room());
    source = out.source;
    return is_composed;
  };
  while (source == OutSegment::Source::copied || stream.is_in_response()) {
    if (!add(respond)) break;
  }
  if (stream.fault()) {
    if (stream.has_pending_responses()) return bytes > 0;
    while (add([&](OutSegment& out) { return stream.compose_fault_report(out); })) continue;
    return bytes > 0;
  }
  while (add([&](OutSegment& out) { return compose_request(out); })) continue;
  if (stream.is_ack_due() && (bytes > 0 || !defer_ack_)) {
    add([&](OutSegment& out) {
      stream.compose_ack(out);
      return true;
    });
  }
  return bytes > 0;
}

void IwarpQueuePair::end_fault() {
  const Status own = channel_->stream().fault()->own;
  end_code_.store(own == Status::success ? ErrorCode("peer_refused") : "bad_message",
                  std::memory_order_relaxed);
  lost_.store(true, std::memory_order_relaxed);
  if (own == Status::success) return enter_error();
  fail(own);
}

bool IwarpQueuePair::is_source_valid(const OutSegment& segment) const {
  if (segment.source == OutSegment::Source::request) return local_is_valid(segment.request, false);
  const soft::RegionEntry* region = nullptr;
  return soft::check_remote(context().regions().entries(), segment.region_key, pd(), number(),
                            reinterpret_cast<uint64_t>(segment.pieces[0].iov_base), segment.payload_size,
                            access::remote_read, &region) == Status::success;
}

void IwarpQueuePair::finish(uint64_t index, Status status) {
  SendEntry& entry = send_queue_.at(index);
  entry.status = status;
  entry.finished = true;
  if (status != Status::success) halted_at_ = std::min(halted_at_, index);
}

// reap() examines only entries before next(): those that were sent, and the one that failed.
void IwarpQueuePair::advance_send_queue() {
  while (send_queue_.next() < emit_) send_queue_.advance_next();
  while (is_halted() && send_queue_.next() <= halted_at_) send_queue_.advance_next();
}

void IwarpQueuePair::fail_unreachable() {
  if (!may_transmit() || is_halted() || emit_ == send_queue_.tail()) return;
  const Status status = check_entry(emit_);
  finish(emit_, status == Status::success ? Status::retry_exc_err : status);
  ++emit_;
  advance_send_queue();
}

Status IwarpQueuePair::check_entry(uint64_t index) const {
  const SendEntry& entry = send_queue_.at(index);
  if (!local_is_valid(index, expects_answer(entry.opcode))) return Status::loc_prot_err;
  const bool atomic = entry.opcode > Opcode::read;
  if (atomic && entry.length != sizeof(uint64_t)) return Status::loc_len_err;
  const bool extension = atomic || has_immediate(entry.opcode);
  if (extension && channel_ && !channel_->stream().agreement().acknowledged) return Status::loc_qp_op_err;
  return Status::success;
}

bool IwarpQueuePair::is_paused() {
  if (pause_until_ns_ == 0) return false;
  if (now_ns() < pause_until_ns_) return true;
  pause_until_ns_ = 0;
  return false;
}

bool IwarpQueuePair::may_start(const SendEntry& entry) {
  if (!may_transmit() || peer_not_ready_) return false;
  if ((entry.flags & send_flag::fence) && !pending_.empty()) return false;
  const uint32_t depth = std::min<uint32_t>(std::max<uint32_t>(attributes_.max_rd_atomic, 1),
                                            channel_->stream().agreement().peer_ird);
  return !expects_answer(entry.opcode) || pending_.size() < depth;
}

bool IwarpQueuePair::compose_request(OutSegment& out) {
  if (emit_ == send_queue_.tail() || is_halted() || peer_not_ready_) return false;
  SendEntry& entry = send_queue_.at(emit_);
  if (!entry.started && !may_start(entry)) return false;
  // Checked for each segment: the lock may have been free between two of them, and a region closed.
  if (const Status status = check_entry(emit_); status != Status::success) {
    finish(emit_, status);
    return false;
  }
  entry.started = true;
  if (expects_answer(entry.opcode)) {
    compose_read_or_atomic(out, entry);
  } else if (entry.opcode == Opcode::send || entry.opcode == Opcode::send_with_imm) {
    compose_message(out, entry);
  } else {
    compose_write(out, entry);
  }
  out.request = emit_;
  if (out.ends_request) ++emit_;
  return true;
}

void IwarpQueuePair::compose_message(OutSegment& out, SendEntry& entry) {
  Stream& stream = channel_->stream();
  if (entry.cursor == 0) number_of(emit_) = stream.count_request();
  const size_t length = std::min<uint64_t>(entry.length - entry.cursor, stream.mulpdu());
  const bool last = entry.cursor + length == entry.length;
  stream.begin_send(out, entry.cursor, last, entry.flags & send_flag::solicited,
                    has_immediate(entry.opcode) ? &entry.immediate : nullptr);
  fill_payload(out, entry.cursor, length);
  stream.seal(out);
  entry.cursor += length;
  out.ends_request = last;
}

void IwarpQueuePair::compose_write(OutSegment& out, SendEntry& entry) {
  Stream& stream = channel_->stream();
  const bool announced = entry.opcode == Opcode::write_with_imm;
  if (announced && entry.cursor == entry.length) {
    number_of(emit_) = stream.count_request();
    stream.compose_immediate(out, entry.immediate, entry.flags & send_flag::solicited);
    out.ends_request = true;
    return;
  }
  if (const uint32_t run = stream.run_length(entry.length - entry.cursor, channel_->room())) {
    return stream.compose_run(out, run);
  }
  if (entry.cursor == 0) number_of(emit_) = stream.count_request();
  const size_t length = std::min<uint64_t>(entry.length - entry.cursor, stream.mulpdu());
  const bool last = entry.cursor + length == entry.length;
  stream.begin_write(out, entry.rkey, entry.remote_addr + entry.cursor, static_cast<uint32_t>(length), last);
  fill_payload(out, entry.cursor, length);
  stream.seal(out);
  // The caller of post_send() wants the CRC32C of the payload; the segments' checksums contain it.
  if (entry.crc32c && out.piece_count > 0 && stream.sums_out()) {
    const uint32_t sum = out.continue_sum(entry.cursor == 0 ? 0 : entry.sum);
    entry.sum = sum;
    if (last) *entry.crc32c = sum;
  } else {
    entry.crc32c = nullptr;
  }
  entry.cursor += length;
  out.ends_request = last && !announced;
}

void IwarpQueuePair::compose_read_or_atomic(OutSegment& out, SendEntry& entry) {
  Stream& stream = channel_->stream();
  number_of(emit_) = stream.count_request();
  entry.cursor = 0;  // counts received bytes from now on
  pending_.push_back(emit_);
  const auto id = static_cast<uint32_t>(emit_);
  if (entry.opcode == Opcode::read) {
    stream.compose_read(out, {id, 0, static_cast<uint32_t>(entry.length), entry.rkey, entry.remote_addr});
  } else {
    const bool swaps = entry.opcode == Opcode::compare_swap;
    const uint64_t all = swaps ? UINT64_MAX : 0;
    stream.compose_atomic(out,
                          {.operation = swaps ? AtomicOperation::compare_swap : AtomicOperation::fetch_add,
                           .id = id,
                           .stag = entry.rkey,
                           .offset = entry.remote_addr,
                           .add_or_swap = swaps ? entry.swap : entry.compare_add,
                           .add_or_swap_mask = all,
                           .compare = swaps ? entry.compare_add : 0,
                           .compare_mask = all});
  }
  out.ends_request = true;
}

void IwarpQueuePair::fill_payload(OutSegment& out, uint64_t offset, size_t length) {
  const bool copy = length <= OutSegment::kCopiedPayload;
  soft::for_each_run(send_queue_.local(emit_), offset, length,
                     [&](const std::byte* from, uint64_t, uint64_t n) {
                       if (copy) {
                         out.append(from, n);
                       } else {
                         out.add_piece(from, n);
                       }
                     });
  if (!copy) out.source = OutSegment::Source::request;
}

}  // namespace verbena::iwarp
