// Receiving segments: checks each header against the RFCs, then gets the placement from the host. All input
// comes from a peer: no field is used before it is checked, and no memory before the host has agreed.
#include <algorithm>
#include <cstring>

#include "providers/iwarp/protocol/stream.h"

namespace verbena::iwarp {
namespace {

const Stream::Fault kCorrupt{.refusal = {.code = TerminateCode::mpa_crc}, .own = Status::retry_exc_err};
const Stream::Fault kMalformed{.refusal = {.code = TerminateCode::mpa_framing}, .own = Status::retry_exc_err};

bool is_send(RdmapOpcode opcode) {
  return opcode >= RdmapOpcode::send && opcode <= RdmapOpcode::send_solicited_invalidate;
}

bool carries_stag(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_invalidate || opcode == RdmapOpcode::send_solicited_invalidate;
}

bool is_solicited(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_solicited || opcode == RdmapOpcode::send_solicited_invalidate ||
         opcode == RdmapOpcode::immediate_solicited;
}

// The queue of an untagged opcode and the length of its message; no value for a tagged opcode.
struct Untagged {
  Queue queue;
  size_t shortest, longest;
};

std::optional<Untagged> untagged_form(RdmapOpcode opcode) {
  const auto exactly = [](Queue queue, size_t size) { return Untagged{queue, size, size}; };
  switch (opcode) {
    case RdmapOpcode::send:
    case RdmapOpcode::send_invalidate:
    case RdmapOpcode::send_solicited:
    case RdmapOpcode::send_solicited_invalidate:
      return Untagged{Queue::send, 0, kMaxUlpdu};
    case RdmapOpcode::immediate:
    case RdmapOpcode::immediate_solicited:
      return exactly(Queue::send, sizeof(ImmediateBody));
    case RdmapOpcode::read_request:
      return exactly(Queue::read_request, sizeof(ReadRequestBody));
    case RdmapOpcode::atomic_request:
      return exactly(Queue::read_request, sizeof(AtomicRequestBody));
    case RdmapOpcode::terminate:
      return Untagged{Queue::terminate, sizeof(TerminateBody), kMaxTerminateBytes};
    case RdmapOpcode::atomic_response:
      return exactly(Queue::atomic_response, sizeof(AtomicResponseBody));
    case RdmapOpcode::acknowledgement:
      return exactly(Queue::verbena, sizeof(AckBody));
    case RdmapOpcode::write:
    case RdmapOpcode::read_response:
      break;
  }
  return std::nullopt;
}

}  // namespace

template <typename Body>
Body Stream::body() const {
  Body body;
  std::memcpy(&body, reader_.kept().data(), sizeof body);  // the length was checked with the header
  return body;
}

bool Stream::work() {
  while (!fault_ && !terminated_) {
    switch (reader_.next()) {
      case FpduReader::Event::more:
        return true;
      case FpduReader::Event::header:
        begin_segment();
        break;
      case FpduReader::Event::end:
        end_segment();
        break;
      case FpduReader::Event::empty:
        has_received_ = true;
        break;
      case FpduReader::Event::corrupt:
        set_fault(kCorrupt);
        break;
      case FpduReader::Event::malformed:
        set_fault(kMalformed);
        break;
    }
  }
  return false;
}

bool Stream::take_marked(std::span<const std::byte> bytes) {
  for (;;) {
    switch (stripper_->take(bytes)) {
      case MarkerStripper::Event::more:
        return !fault_ && !terminated_;  // revalidate() may have ended the stream meanwhile
      case MarkerStripper::Event::fpdu:
        if (!feed(stripper_->fpdu())) return false;
        break;
      case MarkerStripper::Event::corrupt:
        set_fault(kCorrupt);
        return false;
      case MarkerStripper::Event::misplaced:
        set_fault(kMalformed);
        return false;
    }
  }
}

bool Stream::feed(std::span<const std::byte> fpdu) {
  while (!fpdu.empty()) {
    iovec room[kMaxRoom];
    const size_t count = reader_.room(room);
    size_t taken = 0;
    for (size_t i = 0; i < count && !fpdu.empty(); ++i) {
      const size_t n = std::min(room[i].iov_len, fpdu.size());
      std::memcpy(room[i].iov_base, fpdu.data(), n);
      fpdu = fpdu.subspan(n);
      taken += n;
    }
    reader_.arrived(taken);
    if (!work()) return false;
  }
  return true;
}

void Stream::set_fault(const Fault& fault) {
  if (!fault_) fault_ = fault;
}

bool Stream::refuse(Status status, TerminateCode code) {
  const auto header = reader_.header();
  std::memcpy(fault_header_.data(), header.data(), header.size());
  fault_header_size_ = header.size();
  fault_segment_bytes_ = header.size() + header_.length;
  set_fault({.refusal = {.status = status, .code = code},
             .request = agreement_.acknowledged && is_request() ? executed_ + 1 : 0});
  return false;
}

bool Stream::protocol_error(TerminateCode code) {
  refuse(Status::rem_inv_req_err, code);
  fault_->own = Status::bad_resp_err;
  return false;
}

bool Stream::accept(const Refusal& refusal) {
  if (!refusal) return true;
  if (!refusal.not_ready) return refuse(refusal.status, refusal.code);
  if (!agreement_.acknowledged) return refuse(Status::rnr_retry_exc_err, TerminateCode::ddp_no_buffer);
  discarding_ = not_ready_due_ = true;
  return true;
}

bool Stream::is_request() const {
  return header_.opcode != RdmapOpcode::read_response && header_.opcode != RdmapOpcode::terminate &&
         header_.opcode != RdmapOpcode::atomic_response && header_.opcode != RdmapOpcode::acknowledgement;
}

Refusal Stream::find_placement(uint32_t length, Placement& placement) {
  if (header_.opcode == RdmapOpcode::write) {
    return host_.place_write(header_.stag, header_.offset, length, placement);
  }
  if (header_.opcode == RdmapOpcode::read_response) {
    return host_.place_response(header_.stag, header_.offset, length, placement);
  }
  return host_.place_message(progress_, length, placement);
}

void Stream::revalidate() {
  if (!reader_.is_placing()) return;
  Placement placement;
  const Refusal refusal =
      find_placement(reader_.in_run() ? static_cast<uint32_t>(run_.left) : header_.length, placement);
  if (!refusal && placement.count > 0) return;
  // The rest of the segment must still be read, to find the next one.
  reader_.discard();
  late_refusal_ = refusal;
}

bool Stream::begin_segment() {
  header_ = decode_header(reader_.header(), reader_.payload_bytes());
  late_refusal_ = {};
  is_rtr_ = false;
  if (!header_.ddp_version_ok) {
    return protocol_error(header_.tagged ? TerminateCode::ddp_tagged_version
                                         : TerminateCode::ddp_untagged_version);
  }
  if (!header_.rdmap_version_ok) return protocol_error(TerminateCode::rdmap_version);
  if (header_.tagged) {
    const bool known = header_.opcode == RdmapOpcode::write || header_.opcode == RdmapOpcode::read_response;
    if (!known) return protocol_error(TerminateCode::rdmap_opcode);
  } else if (!check_untagged()) {
    return false;
  }
  // The initiator's first message permits us to send. A zero-length WRITE is only that (RTR).
  if (!has_received_ && !agreement_.initiator && agreement_.rtr == Rtr::write &&
      header_.opcode == RdmapOpcode::write && header_.length == 0) {
    is_rtr_ = true;
    return true;
  }
  if (rtr_read_pending_ && header_.opcode == RdmapOpcode::read_response && header_.length == 0) {
    rtr_read_pending_ = false;
    is_rtr_ = true;
    return true;
  }
  if (discarding_ && is_request()) {
    run_ = {};
    return true;
  }
  if (run_.left > 0 && !check_run()) return false;
  if (!header_.tagged && !is_send(header_.opcode)) {
    reader_.keep();
    return true;
  }
  return place();
}

bool Stream::check_run() {
  const bool begins = run_.segment == 0;
  if (begins) run_ = {run_.left, header_.length, header_.opcode, header_.stag, header_.offset};
  const bool continues_run = header_.tagged && header_.opcode == run_.opcode && header_.stag == run_.stag &&
                             header_.offset == run_.offset && header_.length > 0 &&
                             header_.length == std::min<uint64_t>(run_.segment, run_.left) &&
                             (!header_.last || header_.length == run_.left);
  if (!continues_run) return protocol_error(TerminateCode::rdmap_stream);
  run_.offset += header_.length;
  return true;
}

bool Stream::place() {
  if (reader_.in_run()) {
    reader_.continue_run();
    return true;
  }
  Placement placement;
  // Places a whole run at once if the host accepts all of it. If not, the segment without a place is refused
  // later.
  if (run_.left > header_.length && run_.segment == header_.length &&
      !find_placement(static_cast<uint32_t>(run_.left), placement) && placement.count > 0) {
    reader_.place({placement.pieces.data(), placement.count}, run_.left - header_.length);
    return true;
  }
  placement = {};
  if (!accept(find_placement(header_.length, placement)) || discarding_) return !fault_;
  if (placement.count > 0) reader_.place({placement.pieces.data(), placement.count});
  return true;
}

bool Stream::check_untagged() {
  const auto form = untagged_form(header_.opcode);
  const bool ours = header_.opcode == RdmapOpcode::acknowledgement;
  if (header_.queue >= kQueueCount ||
      (header_.queue == static_cast<uint32_t>(Queue::verbena) && !agreement_.acknowledged)) {
    return protocol_error(TerminateCode::ddp_invalid_queue);
  }
  if (!form || (ours && !agreement_.acknowledged)) return protocol_error(TerminateCode::rdmap_opcode);
  if (static_cast<uint32_t>(form->queue) != header_.queue) return protocol_error(TerminateCode::rdmap_opcode);
  if (header_.message != expected_[header_.queue]) return protocol_error(TerminateCode::ddp_message_number);
  const bool sends = is_send(header_.opcode);
  if (header_.offset != (sends ? progress_ : 0)) return protocol_error(TerminateCode::ddp_message_offset);
  if (sends) return progress_ + header_.length <= UINT32_MAX || protocol_error(TerminateCode::ddp_too_long);
  if (in_message_ && form->queue == Queue::send) return protocol_error(TerminateCode::ddp_message_number);
  if (header_.length > form->longest || !header_.last) return protocol_error(TerminateCode::ddp_too_long);
  if (header_.length < form->shortest) return protocol_error(TerminateCode::rdmap_stream);
  return true;
}

bool Stream::end_segment() {
  has_received_ = true;
  if (is_rtr_) return true;
  if (run_.segment > 0 && (run_.left -= header_.length) == 0) run_ = {};
  if (late_refusal_) return refuse(late_refusal_.status, late_refusal_.code);
  if (header_.opcode == RdmapOpcode::write) return end_write();
  if (header_.opcode == RdmapOpcode::read_response) {
    const Refusal refusal = host_.response_arrived(header_.length, header_.last);
    return !refusal || protocol_error(refusal.code);
  }
  if (is_send(header_.opcode)) return end_message();
  ++expected_[header_.queue];
  return end_control();
}

bool Stream::end_write() {
  if (discarding_) return true;
  writing_ += header_.length;
  if (!header_.last) return true;
  written_ = writing_;
  writing_ = 0;
  executed();
  return true;
}

bool Stream::end_message() {
  progress_ += header_.length;
  in_message_ = !header_.last;
  if (!header_.last) return true;
  ++expected_[header_.queue];
  const uint64_t length = progress_;
  progress_ = 0;
  if (discarding_) return true;
  written_ = 0;
  // Verbena has no remote invalidation: between its ends, this field carries the immediate.
  const bool has_immediate = agreement_.acknowledged && carries_stag(header_.opcode);
  if (!accept(host_.message_arrived(length, is_solicited(header_.opcode),
                                    has_immediate ? &header_.invalidate : nullptr))) {
    return false;
  }
  executed();
  return true;
}

bool Stream::end_control() {
  if (discarding_ && is_request()) return true;
  switch (header_.opcode) {
    case RdmapOpcode::immediate:
    case RdmapOpcode::immediate_solicited: {
      const auto value = static_cast<uint32_t>(body<ImmediateBody>().value);
      if (!accept(host_.immediate_arrived(value, written_, is_solicited(header_.opcode)))) return false;
      if (discarding_) return true;
      break;
    }
    case RdmapOpcode::read_request: {
      const auto fields = body<ReadRequestBody>();
      const ReadRequest request{fields.sink_stag, fields.sink_offset, fields.length, fields.source_stag,
                                fields.source_offset};
      if (responses_.size() >= own_ird_) return protocol_error(TerminateCode::rdmap_stream);
      if (!accept(host_.read_requested(request))) return false;
      responses_.push_back({.read = request, .request_number = executed_ + 1});
      break;
    }
    case RdmapOpcode::atomic_request: {
      const auto fields = body<AtomicRequestBody>();
      const AtomicRequest request{.operation = static_cast<AtomicOperation>(fields.operation & 0xf),
                                  .id = fields.request_id,
                                  .stag = fields.stag,
                                  .offset = fields.offset,
                                  .add_or_swap = fields.add_or_swap,
                                  .add_or_swap_mask = fields.add_or_swap_mask,
                                  .compare = fields.compare,
                                  .compare_mask = fields.compare_mask};
      if (responses_.size() >= own_ird_) return protocol_error(TerminateCode::rdmap_stream);
      uint64_t original = 0;
      if (!accept(host_.execute_atomic(request, original))) return false;
      responses_.push_back(
          {.is_read = false, .atomic_id = request.id, .original = original, .request_number = executed_ + 1});
      break;
    }
    case RdmapOpcode::atomic_response: {
      const auto fields = body<AtomicResponseBody>();
      const Refusal refusal = host_.atomic_answered(fields.request_id, fields.original);
      return !refusal || protocol_error(refusal.code);
    }
    case RdmapOpcode::terminate: {
      terminated_ = true;
      const auto termination = parse_terminate(reader_.kept());
      host_.terminated(termination.value_or(Termination{}));
      return false;
    }
    default:
      return take_acknowledgement();
  }
  written_ = 0;
  executed();
  return true;
}

bool Stream::take_acknowledgement() {
  const auto ack = body<AckBody>();
  // Counts have 32 bits on the wire. They never decrease, nor exceed the number of requests.
  const uint64_t executed =
      confirmed_ + static_cast<uint32_t>(ack.executed - static_cast<uint32_t>(confirmed_));
  if (executed > requested_) return protocol_error(TerminateCode::rdmap_stream);
  confirmed_ = executed;
  host_.acknowledged(executed);
  switch (static_cast<AckKind>(ack.kind)) {
    case AckKind::executed:
      return true;
    case AckKind::not_ready:
      if (executed == requested_) break;
      host_.peer_not_ready(executed, ack.rnr_timer);
      return true;
    case AckKind::ready:
      host_.peer_ready();
      return true;
    case AckKind::restart:
      // The message that was cut short ends here.
      if (in_message_) ++expected_[static_cast<size_t>(Queue::send)];
      in_message_ = discarding_ = false;
      progress_ = writing_ = 0;
      return true;
    case AckKind::run:
      run_ = {.left = ack.failed};
      return true;
    case AckKind::failed: {
      // Behind the executed requests, or before them, for a READ that was accepted first.
      const auto distance = static_cast<int32_t>(ack.failed - static_cast<uint32_t>(executed));
      const uint64_t request = executed + static_cast<uint64_t>(int64_t{distance});
      if (request == 0 || request > requested_) break;
      if (ack.status == 0 || ack.status > static_cast<uint8_t>(Status::tm_rndv_incomplete)) break;
      host_.request_failed(request, static_cast<Status>(ack.status));
      return true;
    }
  }
  return protocol_error(TerminateCode::rdmap_stream);
}

}  // namespace verbena::iwarp
