#include "kv/frontends/valkey_rdma_link.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena::kv {

namespace {

constexpr uint32_t kControls = 64;
constexpr uint64_t kTagShift = 56;

}  // namespace

ValkeyRdmaLink::Area::Area(const ValkeyRdmaResources& parts, size_t bytes, uint32_t access)
    : memory(parts.context->allocate(bytes, {})),
      region(parts.pd->register_memory(memory->data(), bytes, access, false)) {}

ValkeyRdmaLink::ValkeyRdmaLink(ValkeyRdmaResources parts, uint32_t window_bytes)
    : parts_(std::move(parts)),
      window_bytes_(window_bytes),
      window_area_(parts_, window_bytes, access::local_write | access::remote_write),
      staging_(parts_, window_bytes, 0),
      receives_(parts_, kReceives * kControlBytes, access::local_write),
      controls_(parts_, kControls * kControlBytes, 0),
      window_({reinterpret_cast<uint64_t>(window_area_.at(0)), window_bytes, window_area_.region->rkey()}) {
  for (uint32_t i = 0; i < kReceives; ++i) post_receive(i);
}

ValkeyRdmaLink::~ValkeyRdmaLink() {
  if (qp_) qp_->close();
}

void ValkeyRdmaLink::post_receive(uint32_t index) {
  const Sge piece = receives_.piece(index * kControlBytes, kControlBytes);
  const RecvRequest request{.id = uint64_t{receive_tag} << kTagShift | index, .local = {&piece, 1}};
  parts_.srq->post({&request, 1});
}

void ValkeyRdmaLink::start(std::shared_ptr<QueuePair> qp) {
  qp_ = std::move(qp);
  post_controls();
}

bool ValkeyRdmaLink::post_controls() {
  while (!waiting_controls_.empty() && controls_posted_ - controls_done_ < kControls) {
    const ControlMessage message = waiting_controls_.front();
    waiting_controls_.pop_front();
    if (!post_control(message)) return false;
  }
  while (controls_posted_ - controls_done_ < kControls) {
    const auto message = window_.next_control();
    if (!message) return true;
    if (!post_control(*message)) return false;
  }
  return true;
}

bool ValkeyRdmaLink::post_control(const ControlMessage& message) {
  const size_t place = controls_posted_ % kControls * kControlBytes;
  std::memcpy(controls_.at(place), message.data(), message.size());
  const Sge piece = controls_.piece(place, kControlBytes);
  const SendRequest request{.id = uint64_t{control_tag} << kTagShift,
                            .opcode = Opcode::send,
                            .flags = send_flag::signaled,
                            .local = {&piece, 1}};
  ++controls_posted_;
  return qp_->post_send({&request, 1}).accepted == 1 || fail();
}

bool ValkeyRdmaLink::keep_alive() {
  if (over_ || !qp_) return !over_;
  waiting_controls_.push_back(ValkeyRdmaWindow::keepalive());
  return post_controls();
}

size_t ValkeyRdmaLink::send(std::string_view bytes) {
  size_t taken = 0;
  while (!over_ && qp_ && taken < bytes.size()) {
    if (writes_.size() >= kSends / 2 || (limits_unanswered_ && unanswered_ >= kMostUnanswered)) break;
    const uint32_t head = (tail_ + staged_) % window_bytes_;
    const uint32_t room = std::min(window_bytes_ - staged_, window_bytes_ - head);
    const auto write = window_.next_write(std::min<size_t>(room, bytes.size() - taken));
    if (!write) break;
    std::memcpy(staging_.at(head), bytes.data() + taken, write->length);
    const Sge piece = staging_.piece(head, write->length);
    const SendRequest request{.id = uint64_t{write_tag} << kTagShift,
                              .opcode = Opcode::write_with_imm,
                              .flags = send_flag::signaled,
                              .immediate = write->length,
                              .rkey = write->key,
                              .remote_addr = write->address,
                              .local = {&piece, 1}};
    if (qp_->post_send({&request, 1}).accepted != 1) {
      fail();
      break;
    }
    writes_.push_back({write->length});
    staged_ += write->length;
    taken += write->length;
    ++unanswered_;
  }
  return taken;
}

bool ValkeyRdmaLink::drive() {
  if (over_) return false;
  std::array<Completion, 32> done;
  while (const size_t count = parts_.cq->poll(done)) {
    for (size_t i = 0; i < count; ++i) {
      if (!handle(done[i])) return fail();
    }
    if (count < done.size()) break;
  }
  return !qp_ || post_controls();
}

bool ValkeyRdmaLink::handle(const Completion& completion) {
  if (completion.status != Status::success) return false;
  const uint64_t tag = completion.id >> kTagShift;
  if (tag == control_tag) {
    ++controls_done_;
    return true;
  }
  if (tag == write_tag) {
    tail_ = (tail_ + writes_.front().bytes) % window_bytes_;
    staged_ -= writes_.front().bytes;
    writes_.pop_front();
    return true;
  }
  const auto index = static_cast<uint32_t>(completion.id & 0xffffffff);
  unanswered_ = 0;
  const bool fine =
      completion.opcode == WcOpcode::recv_rdma_with_imm
          ? window_.handle_immediate(completion.immediate)
          : window_.handle_control({receives_.at(index * kControlBytes), completion.byte_count});
  if (fine) post_receive(index);
  return fine;
}

std::string_view ValkeyRdmaLink::arrived() const {
  const ValkeyRdmaWindow::Range range = window_.arrived();
  return {reinterpret_cast<const char*>(window_area_.at(range.offset)), range.length};
}

bool ValkeyRdmaLink::consume(size_t bytes) {
  window_.consume(static_cast<uint32_t>(bytes));
  return !over_ && post_controls();
}

}  // namespace verbena::kv
