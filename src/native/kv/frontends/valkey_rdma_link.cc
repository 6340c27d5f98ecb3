#include "kv/frontends/valkey_rdma_link.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena::kv {

namespace {

constexpr uint32_t kControls = 64;
constexpr uint64_t kTagShift = 56;

}  // namespace

ValkeyRdmaLink::ValkeyRdmaLink(ValkeyRdmaResources parts, uint32_t window_bytes)
    : parts_(std::move(parts)), window_bytes_(window_bytes) {
  const size_t total = 2 * size_t{window_bytes_} + (kReceives + kControls) * kControlBytes;
  memory_ = parts_.context->allocate(total, false);
  window_memory_ = memory_->data();
  // The peer's key opens the window and nothing behind it.
  window_region_ = parts_.pd->register_memory(window_memory_, window_bytes_,
                                              access::local_write | access::remote_write, false);
  region_ = parts_.pd->register_memory(window_memory_ + window_bytes_, total - window_bytes_,
                                       access::local_write, false);
  staging_ = window_memory_ + window_bytes_;
  receives_ = staging_ + window_bytes_;
  controls_ = receives_ + kReceives * kControlBytes;
  window_ = std::make_unique<ValkeyRdmaWindow>(ValkeyRdmaWindow::RemoteBuffer{
      reinterpret_cast<uint64_t>(window_memory_), window_bytes_, window_region_->rkey()});
  for (uint32_t i = 0; i < kReceives; ++i) post_receive(i);
}

ValkeyRdmaLink::~ValkeyRdmaLink() {
  if (qp_) qp_->close();
  window_region_->close();
  region_->close();
}

void ValkeyRdmaLink::post_receive(uint32_t index) {
  const Sge piece{reinterpret_cast<uint64_t>(receives_ + index * kControlBytes), kControlBytes,
                  region_->lkey()};
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
    const auto message = window_->next_control();
    if (!message) return true;
    if (!post_control(*message)) return false;
  }
  return true;
}

bool ValkeyRdmaLink::post_control(const ControlMessage& message) {
  std::byte* place = controls_ + controls_posted_ % kControls * kControlBytes;
  std::memcpy(place, message.data(), message.size());
  const Sge piece{reinterpret_cast<uint64_t>(place), kControlBytes, region_->lkey()};
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
    const auto write = window_->next_write(std::min<size_t>(room, bytes.size() - taken));
    if (!write) break;
    std::memcpy(staging_ + head, bytes.data() + taken, write->length);
    const Sge piece{reinterpret_cast<uint64_t>(staging_ + head), write->length, region_->lkey()};
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
  const bool fine = completion.opcode == WcOpcode::recv_rdma_with_imm
                        ? window_->handle_immediate(completion.immediate)
                        : window_->handle_control({receives_ + index * kControlBytes, completion.byte_count});
  if (fine) post_receive(index);
  return fine;
}

std::string_view ValkeyRdmaLink::arrived() const {
  const ValkeyRdmaWindow::Range range = window_->arrived();
  return {reinterpret_cast<const char*>(window_memory_) + range.offset, range.length};
}

bool ValkeyRdmaLink::consume(size_t bytes) {
  window_->consume(static_cast<uint32_t>(bytes));
  return !over_ && post_controls();
}

}  // namespace verbena::kv
