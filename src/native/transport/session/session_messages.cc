// The messages of a session: numbers them when it sends them, and checks and delivers each received one
// exactly once.
#include <algorithm>
#include <cstring>

#include "transport/node/node.h"
#include "transport/session/session.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"

namespace verbena::transport {
namespace {

// Longest messages that a session keeps: as replies that the peer has not acknowledged, and as payloads of
// requests that Python serves.
constexpr uint64_t kMaxUnreadMessages = 2, kMaxServedMessages = 4;

}  // namespace

Session::Offered::Offered(std::shared_ptr<Memory> memory, size_t size)
    : bytes(std::move(memory)),
      length(size),
      crc(crc32c(0, bytes->data(), length)),
      registration(bytes->data(), length, access::window) {}

Operation* Session::call(uint32_t method, std::span<const std::byte> payload) {
  if (over_ || waiting() >= options_.max_waiting) return nullptr;
  Operation& operation = node_.operations().begin(*this);
  operation.started_ns = now_ns();
  if (!submit(MessageKind::request, OperationTable::id(operation), method, payload)) {
    operation.outcome = Outcome::too_long;
    operation.finished.store(true, std::memory_order_release);
  }
  return &operation;
}

bool Session::reply(uint64_t call, std::span<const std::byte> payload) {
  return over_ || submit(MessageKind::reply, call, 0, payload);
}

void Session::fail(uint64_t call, Outcome outcome, std::string_view why) {
  if (over_) return;
  constexpr size_t kMaxBytes = 1024;
  std::vector<std::byte> payload{static_cast<std::byte>(outcome)};
  const auto text = std::as_bytes(std::span(why.substr(0, kMaxBytes)));
  payload.insert(payload.end(), text.begin(), text.end());
  submit(MessageKind::failure, call, 0, payload);
}

void Session::cancel(Operation& operation) {
  if (operation.opcode == Opcode::send) {
    if (!over_) submit(MessageKind::cancel, OperationTable::id(operation), 0, {});
    return node_.operations().end(operation);
  }
  const size_t dropped = std::erase(pending_, &operation);
  for (auto& [key, entry] : regions_) std::erase(entry.waiting, &operation);
  const bool posted = std::find(posted_.begin(), posted_.end(), &operation) != posted_.end();
  if (dropped || !posted) return node_.operations().end(operation);
  operation.queue = nullptr;
  if (!operation.registration) operation.local = nullptr;  // the caller's memory, from now on in other use
  operation.then = [](Operation&) {};                      // already posted: its completion ends it
}

void Session::send_close() {
  if (!over_) submit(MessageKind::close, 0, 0, {});
}

bool Session::submit(MessageKind kind, uint64_t call, uint32_t method, std::span<const std::byte> payload) {
  if (payload.size() > options_.max_message_bytes) return false;
  const bool first = transmitted_ == unacknowledged_.size();
  Outgoing& message = unacknowledged_.emplace_back();
  message.header.kind = kind;
  message.header.call = call;
  message.header.method = method;
  message.header.sequence = sequence_.next();
  message.header.length = static_cast<uint32_t>(payload.size());
  message.payload_bytes = payload.size();
  unacknowledged_bytes_ += payload.size();
  if (first && may_transmit(message) && transmit(message, payload)) return true;
  if (!message.buffer && !message.offered) message.payload.assign(payload.begin(), payload.end());
  return true;
}

bool Session::may_transmit(const Outgoing& message) const {
  return link() && link_->room() > 0 && sequence_.may_transmit(message.header.sequence);
}

void Session::flush() {
  while (transmitted_ < unacknowledged_.size()) {
    Outgoing& message = unacknowledged_[transmitted_];
    if (!may_transmit(message) || !transmit(message, message.payload)) return;
  }
}

bool Session::transmit(Outgoing& message, std::span<const std::byte> payload) {
  Port& port = link_->port();
  MessageBuffer* buffer = port.sends().take();
  if (!buffer) return false;
  const size_t most = std::min(peer_buffer_bytes_, port.sends().buffer_bytes()) - sizeof(MessageHeader);
  Reference reference;
  MessageHeader& header = message.header;
  if (message.offered || payload.size() > most) {
    try {
      if (!message.offered) offer(message, payload);
      Offered& offered = *message.offered;
      offered.window = node_.registering(
          [&] { return link_->lend(offered.registration, access::remote_read, *audience_); });
      reference = {reinterpret_cast<uint64_t>(offered.bytes->data()), offered.length, offered.window->rkey(),
                   offered.crc};
      payload = std::as_bytes(std::span(&reference, 1));
      header.flags = message_flag::by_reference;
    } catch (const std::exception& error) {
      give_up(message, error.what());
      payload = message.payload;
    }
  }
  header.length = static_cast<uint32_t>(payload.size());
  header.acknowledged = acknowledged_to_peer_ = sequence_.done();
  header.crc = message_crc(header, payload);
  std::memcpy(buffer->data, &header, sizeof header);
  if (!payload.empty()) std::memcpy(buffer->data + sizeof header, payload.data(), payload.size());
  message.buffer = buffer;
  ++transmitted_;
  if (message.repeated) metrics_->add(Count::replayed_messages);
  message.repeated = true;
  return post_message(*buffer, static_cast<uint32_t>(sizeof header + payload.size()));
}

void Session::offer(Outgoing& message, std::span<const std::byte> payload) {
  const std::shared_ptr<Memory> memory = link_->port().context().allocate(
      payload.size(), {.peer_access = access::remote_read, .group = audience_->group()});
  std::memcpy(memory->data(), payload.data(), payload.size());
  message.offered = std::make_shared<Offered>(memory, payload.size());
  message.payload = {};
}

// The payload cannot be registered. The sequence must have no gap, so the message becomes a failure or a
// cancel.
void Session::give_up(Outgoing& message, std::string_view why) {
  message.offered = nullptr;
  message.header.flags = 0;
  const auto text = std::as_bytes(std::span(why));
  if (message.header.kind == MessageKind::reply) {
    message.header.kind = MessageKind::failure;
    message.payload = {static_cast<std::byte>(Outcome::remote_failure)};
    message.payload.insert(message.payload.end(), text.begin(), text.end());
    return;
  }
  message.header.kind = MessageKind::cancel;
  message.payload.clear();
  if (Operation* operation = node_.operations().find(message.header.call, *this)) {
    operation->result.assign(text.begin(), text.end());
    finish(*operation, Outcome::remote_failure);
  }
}

bool Session::post_message(const MessageBuffer& buffer, uint32_t bytes) {
  const Sge piece{reinterpret_cast<uint64_t>(buffer.data), bytes, buffer.lkey};
  const uint32_t flags = bytes <= link_->max_inline() ? send_flag::inline_data : 0;
  record_sent({buffer.data, bytes});
  if (link_->post({.opcode = Opcode::send, .flags = flags, .local = {&piece, 1}}) == PostError::none) {
    return true;
  }
  lose_link(Status::wr_flush_err, "the queue pair refused a message");
  return false;
}

void Session::record_sent(std::span<const std::byte> bytes) {
  metrics_->add(Count::send_ops);
  metrics_->add(Count::send_bytes, bytes.size());
  if (Capture* capture = node_.capture()) [[unlikely]] {
    capture->record(Direction::sent, id(), link_->port().name(), bytes);
  }
}

void Session::send_unsequenced(MessageKind kind) {
  if (link_->room() == 0) return;
  MessageHeader header{.kind = kind, .acknowledged = sequence_.done()};
  header.crc = message_crc(header, {});
  switch (link_->send_control(header)) {
    case PostError::none:
      acknowledged_to_peer_ = sequence_.done();
      return record_sent(std::as_bytes(std::span(&header, 1)));
    case PostError::full:
      return;
    default:
      lose_link(Status::wr_flush_err, "the queue pair refused a message");
  }
}

void Session::forget_acknowledged() {
  while (!unacknowledged_.empty() && unacknowledged_.front().header.sequence <= sequence_.acknowledged()) {
    if (MessageBuffer* buffer = unacknowledged_.front().buffer) {
      link_->port().sends().give(buffer);
      --transmitted_;
    }
    unacknowledged_bytes_ -= unacknowledged_.front().payload_bytes;
    unacknowledged_.pop_front();
  }
}

void Session::acknowledge_if_due() {
  const uint64_t due = std::max(1u, link_->port().options().window / 2);
  if (sequence_.done() - acknowledged_to_peer_ >= due) send_unsequenced(MessageKind::acknowledge);
}

void Session::on_message(std::span<const std::byte> bytes) {
  if (!link()) return;
  link_->received_since_tick = true;
  metrics_->add(Count::recv_ops);
  metrics_->add(Count::recv_bytes, bytes.size());
  if (Capture* capture = node_.capture()) [[unlikely]] {
    capture->record(Direction::received, id(), link_->port().name(), bytes);
  }
  const auto message = parse_message(bytes);
  if (!message) {
    metrics_->add(Count::damaged_messages);
    return lose_link(Status::bad_resp_err, "a message was damaged, or not of this version");
  }
  const MessageHeader& header = message->header;
  const uint64_t before = sequence_.acknowledged();
  if (!sequence_.acknowledge(header.acknowledged)) {
    return lose_link(Status::bad_resp_err, "the peer acknowledged what was never sent");
  }
  if (sequence_.acknowledged() != before) forget_acknowledged();
  if (header.sequence > sequence_.done() + link_->port().options().window) {
    return lose_link(Status::bad_resp_err, "the peer sent more messages than it may");
  }
  if (header.sequence != 0) {
    switch (sequence_.arrive(header.sequence)) {
      case Arrival::misplaced:
        return lose_link(Status::bad_resp_err, "a message is missing");
      case Arrival::repeated:
        metrics_->add(Count::repeated_messages);
        break;
      case Arrival::fresh:
      case Arrival::resumed:
        if (header.flags & message_flag::by_reference) {
          start_pull(*message);
        } else {
          deliver(header, message->payload, nullptr);
        }
    }
  }
  if (!link()) return;
  if (transmitted_ < unacknowledged_.size()) flush();
  if (link()) acknowledge_if_due();
}

void Session::deliver(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload) {
  switch (header.kind) {
    case MessageKind::request:
      return deliver_request(header, payload, long_payload);
    case MessageKind::reply:
    case MessageKind::failure:
      return deliver_answer(header, payload, long_payload);
    case MessageKind::cancel:
      if (requests_) {
        requests_->push({.kind = EventKind::cancelled, .session = id(), .call = header.call});
      }
      return;
    case MessageKind::close:
      return control_->push({.kind = EventKind::peer_closed, .session = id()});
    case MessageKind::acknowledge:
    case MessageKind::ping:
      return;
  }
}

// Requests beyond the limits fail as `busy`: a peer that does not read its replies, or that sends requests
// faster than they are served, takes a bounded part of this node's memory.
void Session::deliver_request(const MessageHeader& header, std::span<const std::byte> payload,
                              Bytes* long_payload) {
  if (unacknowledged_.size() > 2 * (options_.max_serving + options_.max_waiting)) {
    return lose_link(Status::rnr_retry_exc_err, "the peer sends requests and acknowledges no reply");
  }
  if (unacknowledged_bytes_ > kMaxUnreadMessages * options_.max_message_bytes) {
    return fail(header.call, Outcome::busy, "too many bytes of replies wait for the peer");
  }
  if (Handler* handler = node_.handler(header.method)) {
    return handler->handle({*this, header.call, header.method, payload});
  }
  if (!requests_) return fail(header.call, Outcome::no_such_method, "this peer serves no requests");
  const uint64_t pulled = long_payload ? payload.size() : 0;
  if (serving_ >= options_.max_serving ||
      (pulled > 0 && served_bytes_ + pulled > kMaxServedMessages * options_.max_message_bytes)) {
    return fail(header.call, Outcome::busy, "too many requests are being served");
  }
  ++serving_;
  if (pulled > 0) {
    served_bytes_by_call_.emplace(header.call, pulled);
    served_bytes_ += pulled;
  }
  requests_->push({.kind = EventKind::request,
                   .method = header.method,
                   .session = id(),
                   .call = header.call,
                   .payload = long_payload ? std::move(*long_payload) : Bytes(payload)});
}

void Session::answered(uint64_t call) {
  --serving_;
  const auto found = served_bytes_by_call_.find(call);
  if (found == served_bytes_by_call_.end()) return;
  served_bytes_ -= found->second;
  served_bytes_by_call_.erase(found);
}

void Session::deliver_answer(const MessageHeader& header, std::span<const std::byte> payload,
                             Bytes* long_payload) {
  Operation* operation = node_.operations().find(header.call, *this);
  // Ignored: the call was cancelled, never existed, or has been answered already.
  if (!operation || operation->opcode != Opcode::send || operation->finished.load(std::memory_order_relaxed))
    return;
  if (header.kind == MessageKind::reply) {
    if (long_payload) {
      operation->long_result = std::move(*long_payload);
    } else {
      operation->result.assign(payload.begin(), payload.end());
    }
    return finish(*operation, Outcome::ok);
  }
  const auto code = payload.empty() ? uint8_t{0} : static_cast<uint8_t>(payload[0]);
  const bool known = code > 0 && code <= static_cast<uint8_t>(Outcome::session_failed);
  if (!payload.empty()) operation->result.assign(payload.begin() + 1, payload.end());
  finish(*operation, known ? static_cast<Outcome>(code) : Outcome::remote_failure);
}

}  // namespace verbena::transport
