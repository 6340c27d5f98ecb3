// The responder's half of a queue pair: checks a request as a NIC does, executes it once, answers.
#include <atomic>
#include <cstring>
#include <utility>

#include "providers/fake/queue_pair.h"
#include "providers/soft/scatter.h"

namespace verbena::fake {
namespace {

bool has_immediate(Opcode opcode) {
  return opcode == Opcode::send_with_imm || opcode == Opcode::write_with_imm;
}
bool is_send(Opcode opcode) { return opcode == Opcode::send || opcode == Opcode::send_with_imm; }

uint64_t apply_atomic(const PacketHeader& request) {
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(request.remote_addr));
  if (request.opcode == Opcode::fetch_add) return word.fetch_add(request.compare_add);
  uint64_t found = request.compare_add;
  word.compare_exchange_strong(found, request.swap);
  return found;
}

}  // namespace

void FakeQueuePair::take_request(const OpenedPacket& packet) {
  const PacketHeader& request = packet.header;
  if (!soft::can_respond(state())) return;
  if (request.sequence == ((expected_sequence_ - 1) & kSequenceMask) && !last_answer_.empty()) {
    return fabric_.send({attributes_.dest_gid, attributes_.dest_qp_num}, last_answer_);
  }
  if (request.sequence != expected_sequence_) return;

  PacketHeader header{.sequence = request.sequence, .kind = PacketKind::response, .opcode = request.opcode};
  Packet answer = make_packet(0);
  header.status = check_request(request);
  soft::PostedReceive receive;
  const bool needs_receive = is_send(request.opcode) || has_immediate(request.opcode);
  if (header.status == Status::success) {
    if (needs_receive && !take_receive(receive)) {
      header.kind = PacketKind::rnr_nak;
      header.rnr_timer = attributes_.min_rnr_timer;
      return send_packet(answer, header);
    }
    header.status = execute(packet, needs_receive ? &receive : nullptr, answer);
  }
  expected_sequence_ = (expected_sequence_ + 1) & kSequenceMask;
  send_packet(answer, header);
  last_answer_ = std::move(answer);
  if (header.status != Status::success && state() != QpState::err) enter_error();
}

// Checks rights, alignment and key of a one-sided request. A request without bytes accesses nothing, so its
// key is not checked.
Status FakeQueuePair::check_request(const PacketHeader& request) const {
  const uint32_t needed = soft::remote_access_of(request.opcode);
  if ((attributes_.access_flags & needed) != needed) return Status::rem_inv_req_err;
  if (is_atomic(request.opcode) && request.remote_addr % sizeof(uint64_t) != 0)
    return Status::rem_inv_req_err;
  if (is_send(request.opcode) || request.length == 0) return Status::success;
  const soft::RegionEntry* region = nullptr;
  return soft::check_remote(context().regions().entries(), request.rkey, pd(), number(), request.remote_addr,
                            request.length, needed, &region);
}

// Executes the request; `answer` receives the bytes to return.
Status FakeQueuePair::execute(const OpenedPacket& packet, const soft::PostedReceive* receive,
                              Packet& answer) {
  const PacketHeader& request = packet.header;
  auto* memory = reinterpret_cast<std::byte*>(request.remote_addr);
  if (is_send(request.opcode)) return place_message(packet, *receive);
  if (request.opcode == Opcode::read) {
    answer = make_packet(request.length);
    if (request.length > 0) std::memcpy(payload_of(answer).data(), memory, request.length);
  } else if (is_atomic(request.opcode)) {
    const uint64_t before = apply_atomic(request);
    answer = make_packet(sizeof before);
    std::memcpy(payload_of(answer).data(), &before, sizeof before);
  } else if (!packet.payload.empty()) {
    std::memcpy(memory, packet.payload.data(), packet.payload.size());
  }
  if (receive) {
    complete_receive(*receive, Status::success, static_cast<uint32_t>(request.length), &request.immediate,
                     request.flags & packet_flag::solicited, WcOpcode::recv_rdma_with_imm);
  }
  return Status::success;
}

// Fills a posted receive. An invalid receive is an error of its owner; the sender only learns that the
// request failed.
Status FakeQueuePair::place_message(const OpenedPacket& packet, const soft::PostedReceive& receive) {
  const PacketHeader& request = packet.header;
  const bool solicited = request.flags & packet_flag::solicited;
  if (packet.payload.size() > soft::total_length(receive.local())) {
    complete_receive(receive, Status::loc_len_err, 0, nullptr, solicited);
    return Status::rem_inv_req_err;
  }
  if (!pieces_are_valid(receive.local(), true)) {
    complete_receive(receive, Status::loc_prot_err, 0, nullptr, solicited);
    return Status::rem_op_err;
  }
  soft::scatter(receive.local(), 0, packet.payload.data(), packet.payload.size());
  complete_receive(receive, Status::success, static_cast<uint32_t>(packet.payload.size()),
                   has_immediate(request.opcode) ? &request.immediate : nullptr, solicited);
  return Status::success;
}

}  // namespace verbena::fake
