#include "transport/session/link.h"

#include <algorithm>
#include <cstring>

#include "transport/node/ids.h"
#include "transport/session/message_layout.h"

namespace verbena::transport {

namespace {

bool writes_directly(const QueuePair& qp) {
  const Capabilities all = qp.capabilities();
  return std::find(all.begin(), all.end(), std::pair<std::string, std::string>("arena_memory", "direct")) !=
         all.end();
}

}  // namespace

Link::Link(std::shared_ptr<Port> port, std::shared_ptr<QueuePair> qp)
    : port_(std::move(port)),
      qp_(std::move(qp)),
      number_(qp_->number()),
      max_send_(qp_->limits().max_send),
      max_inline_(qp_->limits().max_inline),
      signal_every_(std::clamp(max_send_ / 4, 1u, 16u)),
      copies_(writes_directly(*qp_)) {
  port_->add(*this);
}

Link::~Link() {
  port_->remove(*this);
  for (MessageBuffer* buffer : retired) port_->sends().give(buffer);
  for (const auto& [buffer, position] : control) port_->sends().give(buffer);
  for (const auto& [buffer, bytes] : early) port_->repost(buffer);
}

uint32_t Link::lend(ExposedRegion& region) {
  region.was_lent = true;
  MemoryLease& lease = memory_leases_[region.key];
  if (!lease.window) lease = {lend(region.memory, region.access, *region.audience), region.audience.get()};
  return lease.window->rkey();
}

void Link::end_memory_leases(const Audience& audience) {
  std::erase_if(memory_leases_, [&](const auto& entry) { return entry.second.audience == &audience; });
}

bool Link::drained() {
  if (completed_ == posted_) return true;
  if (unsignaled_ > 0 && room() > 0) {
    ++posted_;
    unsignaled_ = 0;
    const SendRequest nothing{.id = request_id(RequestTag::message, posted_),
                              .opcode = Opcode::write,
                              .flags = send_flag::signaled};
    qp_->post_send({&nothing, 1});
  }
  return false;
}

bool Link::send_ready() {
  MessageHeader header{.kind = MessageKind::ping};
  header.crc = message_crc(header, {});
  return send_control(header) == PostError::none;
}

PostError Link::send_control(const MessageHeader& header) {
  constexpr uint32_t kBytes = sizeof header;
  if (kBytes <= max_inline_) {
    const Sge piece{reinterpret_cast<uint64_t>(&header), kBytes, 0};
    return post({.opcode = Opcode::send, .flags = send_flag::inline_data, .local = {&piece, 1}});
  }
  auto free = std::find_if(control.begin(), control.end(),
                           [this](const auto& buffer) { return buffer.second <= completed_; });
  if (free == control.end()) {
    MessageBuffer* buffer = port_->sends().take();
    if (!buffer) return PostError::full;
    free = control.insert(control.end(), {buffer, 0});
  }
  std::memcpy(free->first->data, &header, kBytes);
  free->second = posted_ + 1;
  const Sge piece{reinterpret_cast<uint64_t>(free->first->data), kBytes, free->first->lkey};
  return post({.opcode = Opcode::send, .flags = 0, .local = {&piece, 1}});
}

PostError Link::post(SendRequest request) {
  ++posted_;
  // A READ or WRITE does not show the peer that this side lives.
  sent_since_tick |= request.opcode == Opcode::send;
  if (request.flags & send_flag::signaled) {
    unsignaled_ = 0;
  } else {
    request.id = request_id(RequestTag::message, posted_);
    if (++unsignaled_ >= signal_every_) {
      unsignaled_ = 0;
      request.flags |= send_flag::signaled;
    }
  }
  return qp_->post_send({&request, 1}).error;
}

bool Link::post_all(std::span<SendRequest> requests) {
  for (SendRequest& request : requests) {
    ++posted_;
    if (!(request.flags & send_flag::signaled)) request.id = request_id(RequestTag::message, posted_);
  }
  unsignaled_ = 0;
  return qp_->post_send(requests).accepted == requests.size();
}

}  // namespace verbena::transport
