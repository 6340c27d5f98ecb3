// Composing segments: message numbers, offsets, seals. The host decides what to send and when.
#include <algorithm>
#include <cstring>

#include "providers/iwarp/protocol/stream.h"

namespace verbena::iwarp {

Stream::Stream(const Agreement& agreement, uint32_t own_ird, size_t mulpdu, uint8_t rnr_timer,
               StreamHost& host)
    : agreement_(agreement),
      own_ird_(std::max(own_ird, 1u)),
      mulpdu_(std::min(mulpdu, agreement.sends_markers ? kMaxMarkedPayload : kMaxSegmentPayload)),
      rnr_timer_(rnr_timer),
      host_(host),
      reader_(agreement.crc && !agreement.expects_markers),  // with markers, the stripper checks the CRC
      rtr_due_(agreement.initiator && agreement.rtr != Rtr::none),
      rtr_read_pending_(agreement.initiator && agreement.rtr == Rtr::read) {
  if (agreement.expects_markers) stripper_.emplace(agreement.crc);
  if (agreement.sends_markers) inserter_.emplace(agreement.crc);
  expected_.fill(1);
  next_out_.fill(1);
}

void Stream::compose_own(OutSegment& out, AckKind kind, uint8_t status, uint64_t failed) {
  out.begin_untagged(RdmapOpcode::acknowledgement, true, Queue::verbena, next_message(Queue::verbena), 0);
  const AckBody body{static_cast<uint8_t>(kind),   status, rnr_timer_, 0, static_cast<uint32_t>(executed_),
                     static_cast<uint32_t>(failed)};
  out.append(&body, sizeof body);
  seal(out);
  announced_ = executed_;
}

bool Stream::compose_control(OutSegment& out) {
  if (rtr_due_) {
    rtr_due_ = false;
    if (agreement_.rtr == Rtr::read) {
      compose_read(out, {});
    } else {
      out.begin_tagged(RdmapOpcode::write, true, 0, 0);
      seal(out);
    }
    return true;
  }
  const auto compose_if_due = [&](bool& due, AckKind kind) {
    if (!due) return false;
    due = false;
    compose_own(out, kind);
    return true;
  };
  return compose_if_due(not_ready_due_, AckKind::not_ready) || compose_if_due(ready_due_, AckKind::ready) ||
         compose_if_due(restart_due_, AckKind::restart);
}

void Stream::compose_ack(OutSegment& out) { compose_own(out, AckKind::executed); }

// A run must fit into the batch that begins with it: no other segment may come between its segments.
uint32_t Stream::run_length(uint64_t left, size_t room) const {
  constexpr size_t kLeast = 4, kSpare = 2;  // the announcement, and one message behind the run
  if (announced_run_ > 0 || !agreement_.takes_runs || room < kLeast + kSpare) return 0;
  const uint64_t bytes = std::min<uint64_t>(left, (room - kSpare) * mulpdu_);
  return bytes < kLeast * mulpdu_ ? 0 : static_cast<uint32_t>(bytes);
}

void Stream::compose_run(OutSegment& out, uint32_t bytes) {
  announced_run_ = bytes;
  compose_own(out, AckKind::run, 0, bytes);
}

bool Stream::compose_response(OutSegment& out, size_t room) {
  if (responses_.empty()) return false;
  Response& response = responses_.front();
  if (!response.is_read) {
    out.begin_untagged(RdmapOpcode::atomic_response, true, Queue::atomic_response,
                       next_message(Queue::atomic_response), 0);
    const AtomicResponseBody body{response.atomic_id, response.original};
    out.append(&body, sizeof body);
    seal(out);
    responses_.pop_front();
    return true;
  }
  const ReadRequest& read = response.read;
  if (const uint32_t run = run_length(read.length - response.sent, room);
      run > 0 && host_.source(read.source_stag, read.source_offset + response.sent, run)) {
    compose_run(out, run);
    return true;
  }
  const auto length = static_cast<uint32_t>(std::min<size_t>(read.length - response.sent, mulpdu_));
  const std::byte* from =
      length > 0 ? host_.source(read.source_stag, read.source_offset + response.sent, length) : nullptr;
  if (length > 0 && !from) {
    set_fault({.refusal = {.status = Status::rem_access_err, .code = TerminateCode::rdmap_invalid_stag},
               .request = agreement_.acknowledged ? response.request_number : 0});
    responses_.clear();
    return false;
  }
  const bool last = response.sent + length == read.length;
  out.begin_tagged(RdmapOpcode::read_response, last, read.sink_stag, read.sink_offset + response.sent);
  if (length <= OutSegment::kCopiedPayload) {
    out.append(from, length);
  } else if (agreement_.crc) {
    // The memory's owner does not know of the READ and may change the memory at any time.
    out.add_snapshot(from, length);
  } else {
    out.add_piece(from, length);
    out.source = OutSegment::Source::region;
    out.region_key = read.source_stag;
  }
  seal(out);
  response.sent += length;
  announced_run_ -= std::min<uint64_t>(announced_run_, length);
  if (last) responses_.pop_front();
  return true;
}

bool Stream::compose_fault_report(OutSegment& out) {
  if (!fault_) return false;
  const bool names_request = fault_->request != 0;
  if (fault_reports_ == 0 && !names_request) ++fault_reports_;
  switch (fault_reports_++) {
    case 0:
      compose_own(out, AckKind::failed, static_cast<uint8_t>(fault_->refusal.status), fault_->request);
      return true;
    case 1:
      compose_terminate(out, next_message(Queue::terminate), fault_->refusal.code,
                        {fault_header_.data(), fault_header_size_}, fault_segment_bytes_);
      seal(out);
      return true;
    default:
      return false;
  }
}

void Stream::begin_send(OutSegment& out, uint64_t offset, bool last, bool solicited,
                        const uint32_t* immediate) {
  const RdmapOpcode opcode =
      immediate ? (solicited ? RdmapOpcode::send_solicited_invalidate : RdmapOpcode::send_invalidate)
                : (solicited ? RdmapOpcode::send_solicited : RdmapOpcode::send);
  const uint32_t message = next_out_[static_cast<size_t>(Queue::send)];
  out.begin_untagged(opcode, last, Queue::send, message, static_cast<uint32_t>(offset),
                     immediate ? *immediate : 0);
  sending_message_ = !last;
  if (last) next_message(Queue::send);
}

void Stream::begin_write(OutSegment& out, uint32_t stag, uint64_t offset, uint32_t length, bool last) {
  announced_run_ -= std::min<uint64_t>(announced_run_, length);
  out.begin_tagged(RdmapOpcode::write, last, stag, offset);
}

void Stream::compose_immediate(OutSegment& out, uint32_t immediate, bool solicited) {
  out.begin_untagged(solicited ? RdmapOpcode::immediate_solicited : RdmapOpcode::immediate, true, Queue::send,
                     next_message(Queue::send), 0);
  const ImmediateBody body{uint64_t{immediate}};
  out.append(&body, sizeof body);
  seal(out);
}

void Stream::compose_read(OutSegment& out, const ReadRequest& request) {
  out.begin_untagged(RdmapOpcode::read_request, true, Queue::read_request, next_message(Queue::read_request),
                     0);
  const ReadRequestBody body{request.sink_stag, request.sink_offset, request.length, request.source_stag,
                             request.source_offset};
  out.append(&body, sizeof body);
  seal(out);
}

void Stream::compose_atomic(OutSegment& out, const AtomicRequest& request) {
  out.begin_untagged(RdmapOpcode::atomic_request, true, Queue::read_request,
                     next_message(Queue::read_request), 0);
  const AtomicRequestBody body{static_cast<uint32_t>(request.operation),
                               request.id,
                               request.stag,
                               request.offset,
                               request.add_or_swap,
                               request.add_or_swap_mask,
                               request.compare,
                               request.compare_mask};
  out.append(&body, sizeof body);
  seal(out);
}

void Stream::rewind(uint64_t executed) {
  requested_ = executed;
  // A message that was cut short keeps its number.
  if (sending_message_) next_message(Queue::send);
  sending_message_ = false;
}

}  // namespace verbena::iwarp
