// The requester's half of a queue pair: sends the head of the send queue, repeats it, handles the response.
#include "providers/fake/queue_pair.h"
#include "providers/soft/scatter.h"

namespace verbena::fake {
namespace {

bool brings_data(Opcode opcode) { return opcode == Opcode::read || is_atomic(opcode); }

constexpr uint8_t kInfiniteRnrRetry = 7;

}  // namespace

void FakeQueuePair::transmit() {
  while (may_transmit() && waiting_ == Waiting::no && send_queue_.next() != send_queue_.tail()) {
    send_queue_.advance_next();
    retries_ = attributes_.retry_count;
    rnr_retries_ = attributes_.rnr_retry;
    send_head();
  }
}

void FakeQueuePair::advance() {
  Packet packet;
  while (fabric_.receive(me_, packet)) {
    const auto opened = open(packet);
    if (!opened || !comes_from_peer(opened->header)) continue;
    if (opened->header.kind == PacketKind::request) {
      take_request(*opened);
    } else {
      take_response(*opened);
    }
  }
  if (waiting_ != Waiting::no && deadline_ns_ != 0 && deadline_ns_ <= fabric_.now()) timer_expired();
  transmit();
}

// Checked each time the request is sent: its memory may have been deregistered since it was posted.
Status FakeQueuePair::check_head() {
  const uint64_t head = send_queue_.head();
  const soft::SendEntry& entry = send_queue_.at(head);
  if (is_atomic(entry.opcode) && entry.length != sizeof(uint64_t)) return Status::loc_len_err;
  return local_is_valid(head, brings_data(entry.opcode)) ? Status::success : Status::loc_prot_err;
}

void FakeQueuePair::send_head() {
  if (const Status status = check_head(); status != Status::success) return finish_head(status);
  const soft::SendEntry& entry = send_queue_.at(send_queue_.head());
  Packet packet = make_packet(brings_data(entry.opcode) ? 0 : entry.length);
  const auto payload = payload_of(packet);
  soft::gather(send_queue_.local(send_queue_.head()), 0, payload.data(), payload.size());
  const bool solicited = entry.flags & send_flag::solicited;
  wait(Waiting::response, soft::retry_limit_ns(attributes_.timeout, 0));
  send_packet(packet, {.sequence = send_sequence_,
                       .kind = PacketKind::request,
                       .opcode = entry.opcode,
                       .flags = solicited ? packet_flag::solicited : uint8_t{0},
                       .immediate = entry.immediate,
                       .rkey = entry.rkey,
                       .remote_addr = entry.remote_addr,
                       .length = entry.length,
                       .compare_add = entry.compare_add,
                       .swap = entry.swap});
}

void FakeQueuePair::timer_expired() {
  if (waiting_ == Waiting::response && retries_-- == 0) return finish_head(Status::retry_exc_err);
  send_head();
}

void FakeQueuePair::take_response(const OpenedPacket& packet) {
  const PacketHeader& header = packet.header;
  if (waiting_ != Waiting::response || header.sequence != send_sequence_)
    return;  // the response to an earlier repetition
  if (header.kind == PacketKind::rnr_nak) {
    if (rnr_retries_ == 0) return finish_head(Status::rnr_retry_exc_err);
    if (rnr_retries_ != kInfiniteRnrRetry) --rnr_retries_;
    retries_ = attributes_.retry_count;  // the peer is alive
    return wait(Waiting::receiver, soft::rnr_delay_ns(static_cast<uint8_t>(header.rnr_timer)));
  }
  finish_head(header.status == Status::success ? place_response(packet) : header.status);
}

// Places what a READ or an atomic has returned.
Status FakeQueuePair::place_response(const OpenedPacket& packet) {
  const uint64_t head = send_queue_.head();
  const soft::SendEntry& entry = send_queue_.at(head);
  if (!brings_data(entry.opcode)) return Status::success;
  if (packet.payload.size() != entry.length) return Status::bad_resp_err;
  if (!local_is_valid(head, true)) return Status::loc_prot_err;
  soft::scatter(send_queue_.local(head), 0, packet.payload.data(), packet.payload.size());
  return Status::success;
}

void FakeQueuePair::finish_head(Status status) {
  wait(Waiting::no, 0);
  send_sequence_ = (send_sequence_ + 1) & kSequenceMask;
  soft::SendEntry& entry = send_queue_.at(send_queue_.head());
  entry.status = status;
  entry.finished = true;
  reap();
}

void FakeQueuePair::wait(Waiting what, uint64_t delay_ns) {
  waiting_ = what;
  deadline_ns_ = delay_ns == 0 ? 0 : fabric_.now() + delay_ns;
  fabric_.set_timer(me_, deadline_ns_);
}

bool FakeQueuePair::comes_from_peer(const PacketHeader& header) const {
  return header.dest_qp == me_.qp && header.source_qp == attributes_.dest_qp_num &&
         header.source_gid == attributes_.dest_gid;
}

void FakeQueuePair::send_packet(Packet& packet, PacketHeader header) {
  header.source_gid = me_.gid;
  header.source_qp = me_.qp;
  header.dest_qp = attributes_.dest_qp_num;
  seal(packet, header);
  fabric_.send({attributes_.dest_gid, attributes_.dest_qp_num}, packet);
}

}  // namespace verbena::fake
