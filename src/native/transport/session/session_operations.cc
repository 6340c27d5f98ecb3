// One-sided operations of a session, and pulling payloads that were too long to send.
#include <algorithm>
#include <array>
#include <cstring>

#include "transport/node/ids.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"
#include "transport/session/session.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kPullDepth = 4;  // READs in flight per payload

uint32_t needed_access(Opcode opcode) {
  return opcode == Opcode::read ? access::remote_read : access::remote_write;
}

}  // namespace

bool is_own_fault(Status status) {
  switch (status) {
    case Status::loc_len_err:
    case Status::loc_qp_op_err:
    case Status::loc_prot_err:
    case Status::loc_access_err:
    case Status::rem_inv_req_err:
    case Status::rem_access_err:
    case Status::rem_op_err:
      return true;
    default:
      return false;
  }
}

uint32_t Session::buffer_bytes() const {
  uint32_t least = ~uint32_t{0};
  for (const auto& port : node_.ports()) least = std::min(least, port->sends().buffer_bytes());
  return least;
}

Operation* Session::operate(Opcode opcode, uint64_t region, uint64_t offset, std::byte* local,
                            uint32_t length, Registration* registration, bool is_summed) {
  if (over_) return nullptr;
  Operation& operation = node_.operations().begin(*this);
  operation.started_ns = now_ns();
  operation.opcode = opcode;
  operation.region = region;
  operation.offset = offset;
  operation.local = local;
  operation.length = length;
  operation.registration = registration;
  operation.is_summed = is_summed;
  queue_operation(operation);
  if (passes_through_buffer(operation) && !operation.bounce &&
      !operation.finished.load(std::memory_order_relaxed)) {
    keep_bytes(operation, local);  // it waits, and `local` may be reused
  }
  return &operation;
}

Operation* Session::gather(Opcode opcode, std::span<const GatherPiece> pieces) {
  if (!link() || pieces.empty() || pieces.size() > kMaxGathered || link_->room() < pieces.size() ||
      !pending_.empty()) {
    return nullptr;
  }
  gathered_.clear();
  gathered_at_.clear();
  gathered_at_.reserve(2 * kMaxGathered);  // requests point into it: no reallocation
  uint32_t total = 0;
  // Adjacent pieces mostly share the region and the memory.
  const RemoteRegion* remote = nullptr;
  RegisteredRange local;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const GatherPiece& piece = pieces[i];
    if (i == 0 || piece.region != pieces[i - 1].region) remote = region(piece.region);
    if (!remote || !remote->known || (remote->access & needed_access(opcode)) == 0 ||
        piece.offset > remote->length || piece.length > remote->length - piece.offset) {
      return nullptr;
    }
    if (i == 0 || piece.memory != pieces[i - 1].memory || !local.contains(piece.local)) {
      local = node_.registering([&] { return piece.memory->range(link_->port(), piece.local); });
    }
    const size_t first = gathered_at_.size();
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(piece.length, local.from(piece.local)));
    gathered_at_.push_back({reinterpret_cast<uint64_t>(piece.local), length, local.lkey});
    if (length < piece.length) {  // it continues in the next registration
      std::byte* rest = piece.local + length;
      local = node_.registering([&] { return piece.memory->range(link_->port(), rest); });
      gathered_at_.push_back({reinterpret_cast<uint64_t>(rest), piece.length - length, local.lkey});
    }
    gathered_.push_back({.opcode = opcode,
                         .flags = 0,
                         .rkey = remote->rkey,
                         .remote_addr = remote->addr + piece.offset,
                         .local = std::span(gathered_at_).subspan(first),
                         .crc32c = piece.crc32c});
    total += piece.length;
  }
  Operation& operation = node_.operations().begin(*this);
  operation.started_ns = now_ns();
  operation.opcode = opcode;
  operation.once = true;
  operation.length = total;
  operation.requests = static_cast<uint32_t>(pieces.size());
  operation.local = nullptr;
  operation.remote_addr = gathered_[0].remote_addr;
  operation.rkey = gathered_[0].rkey;
  operation.registration = pieces[0].memory;
  posted_.push_back(&operation);
  SendRequest& last = gathered_.back();
  last.id = request_id(RequestTag::operation, operation.index);
  last.flags = send_flag::signaled;
  metrics_->add(opcode == Opcode::read ? Count::read_ops : Count::write_ops, pieces.size() - 1);
  const bool posted = link_->post_all(gathered_);
  operation.position = link_->position();
  if (!posted) lose_link(Status::wr_flush_err, "the queue pair refused an operation");
  return &operation;
}

// A WRITE of unregistered bytes. They are in `bounce` while it is posted, otherwise in `result`.
bool Session::passes_through_buffer(const Operation& operation) {
  return operation.opcode == Opcode::write && !operation.registration;
}

void Session::keep_bytes(Operation& operation, const std::byte* from) {
  operation.result.assign(from, from + operation.length);
  operation.local = operation.result.data();
}

void Session::refuse_operation(Operation& operation, Outcome outcome) {
  if (passes_through_buffer(operation)) operation.result.clear();  // from now on it holds the reason
  finish(operation, outcome);
}

void Session::queue_operation(Operation& operation) {
  if (pending_.empty() && post_operation(operation)) return;
  pending_.push_back(&operation);
}

void Session::post_pending() {
  while (!pending_.empty() && link()) {
    Operation* operation = pending_.front();
    pending_.pop_front();  // first: posting may lose the link, which queues it again
    if (post_operation(*operation)) continue;
    if (link()) pending_.push_front(operation);
    return;
  }
}

// True: the operation was posted, waits for its region, or has failed, so it need not be queued.
bool Session::post_operation(Operation& operation) {
  if (!link() || link_->room() == 0) return false;
  Port& port = link_->port();
  if (operation.region != 0) {
    RemoteRegion& entry = regions_[operation.region];
    if (entry.refused != Outcome::ok) entry = {};  // it may have been lent since
    if (!entry.known) {
      entry.waiting.push_back(&operation);
      if (entry.asked || resolve(operation.region, entry)) return true;
      entry.waiting.pop_back();
      return false;
    }
    if ((entry.access & needed_access(operation.opcode)) == 0) {
      return refuse_operation(operation, Outcome::denied), true;
    }
    if (operation.offset > entry.length || operation.length > entry.length - operation.offset) {
      return refuse_operation(operation, Outcome::out_of_range), true;
    }
    operation.remote_addr = entry.addr + operation.offset;
    operation.rkey = entry.rkey;
  }
  Sge piece{reinterpret_cast<uint64_t>(operation.local), operation.length, 0};
  if (operation.registration) {
    try {
      piece.lkey = node_.registering([&] { return operation.registration->lkey(port, operation.local); });
    } catch (const std::exception& error) {
      const auto text = std::as_bytes(std::span(std::string_view(error.what())));
      operation.result.assign(text.begin(), text.end());
      return finish(operation, Outcome::remote_failure), true;
    }
  } else {
    if (!operation.bounce) operation.bounce = port.sends().take();
    if (!operation.bounce) return false;
    piece = {reinterpret_cast<uint64_t>(operation.bounce->data), operation.length, operation.bounce->lkey};
    if (operation.opcode == Opcode::write && operation.length > 0) {
      std::memcpy(operation.bounce->data, operation.local, operation.length);
      operation.result.clear();
    }
  }
  posted_.push_back(&operation);
  operation.crc32c.reset();  // that of a former link's attempt
  const bool is_empty = operation.length == 0;
  operation.position = link_->position() + 1;
  const PostError error = link_->post({.id = request_id(RequestTag::operation, operation.index),
                                       .opcode = operation.opcode,
                                       .flags = send_flag::signaled,
                                       .rkey = operation.rkey,
                                       .remote_addr = operation.remote_addr,
                                       .local = std::span(&piece, is_empty ? 0 : 1),
                                       .crc32c = operation.is_summed ? &operation.crc32c : nullptr});
  if (error == PostError::unsupported_opcode || error == PostError::message_too_long ||
      error == PostError::invalid) {
    finish_operation(operation, Status::loc_qp_op_err);
  } else if (error != PostError::none) {
    lose_link(Status::wr_flush_err, "the queue pair refused an operation");
  }
  return true;
}

void Session::finish_operation(Operation& operation, Status status) {
  const auto found = std::find(posted_.begin(), posted_.end(), &operation);
  if (found == posted_.end()) return;
  posted_.erase(found);
  const bool is_read = operation.opcode == Opcode::read;
  if (Capture* capture = node_.capture()) [[unlikely]] {
    capture_operation(*capture, operation, status);
  }
  if (operation.bounce) {
    if (is_read && status == Status::success) {
      if (operation.local) {
        std::memcpy(operation.local, operation.bounce->data, operation.length);
      } else {
        operation.result.assign(operation.bounce->data, operation.bounce->data + operation.length);
      }
    }
    link_->port().sends().give(std::exchange(operation.bounce, nullptr));
  }
  operation.status = status;
  if (status == Status::success) {
    metrics_->add(is_read ? Count::read_ops : Count::write_ops);
    metrics_->add(is_read ? Count::read_bytes : Count::write_bytes, operation.length);
    (is_read ? metrics_->read : metrics_->write).record(now_ns() - operation.started_ns);
  }
  finish(operation, status == Status::success ? Outcome::ok : Outcome::failed_status);
}

void Session::capture_operation(Capture& capture, const Operation& operation, Status status) {
  const std::byte* data = operation.bounce ? operation.bounce->data : operation.local;
  const bool has_bytes = data && (operation.opcode != Opcode::read || status == Status::success);
  const size_t length = has_bytes ? operation.length : 0;
  capture.record(
      operation.opcode == Opcode::read ? Captured::read : Captured::write, id(), link_->port().name(),
      {.remote_addr = operation.remote_addr, .rkey = operation.rkey, .status = status}, {data, length});
}

// False: too many messages wait. The call may lose the link, which invalidates `entry`.
bool Session::resolve(uint64_t key, RemoteRegion& entry) {
  const ResolveRequest request{key};
  entry.asked = true;
  Operation* asked = call(method::resolve, std::as_bytes(std::span(&request, 1)));
  if (!asked) return entry.asked = false;
  asked->then = [this, key, link = links_](Operation& answer) {
    if (link == links_) resolved(key, answer);  // another link has other keys, and resolves again
  };
  return true;
}

void Session::resolved(uint64_t key, Operation& answer) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return;
  RemoteRegion& entry = found->second;
  const std::vector<Operation*> waiting = std::exchange(entry.waiting, {});
  ResolveReply reply;
  if (answer.outcome == Outcome::ok && answer.result.size() == sizeof reply) {
    std::memcpy(&reply, answer.result.data(), sizeof reply);
    entry = {.addr = reply.addr,
             .length = reply.length,
             .rkey = reply.rkey,
             .access = reply.access,
             .known = true,
             .asked = true};
    for (Operation* operation : waiting) queue_operation(*operation);
    return;
  }
  const Outcome refusal = answer.outcome == Outcome::ok ? Outcome::remote_failure : answer.outcome;
  // It may be lent later: the next operation asks again. A bulk transfer, which waits without an operation,
  // learns of the refusal from region().
  if (waiting.empty()) {
    entry.refused = refusal;
  } else {
    regions_.erase(found);
  }
  for (Operation* operation : waiting) {
    operation->result = answer.result;
    finish(*operation, refusal);
  }
}

const RemoteRegion* Session::region(uint64_t key) {
  if (!link()) return nullptr;
  RemoteRegion& entry = regions_[key];
  if (entry.refused != Outcome::ok) {
    refused_region_ = {.refused = entry.refused};
    regions_.erase(key);
    return &refused_region_;
  }
  if (!entry.asked) resolve(key, entry);
  return link() ? &entry : nullptr;
}

bool Session::may_stream() const {
  return link() && link_->room() > 1 && transmitted_ == unacknowledged_.size() &&
         sequence_.may_transmit(sequence_.sent() + 1) && link_->port().sends().available() > 0;
}

bool Session::hint(uint64_t region, std::span<const std::byte> bytes) {
  if (!may_stream() || bytes.size() > link_->max_inline()) return false;
  const RemoteRegion* there = this->region(region);
  if (!there || !there->known || there->length < bytes.size()) return false;
  return write_unsignaled({reinterpret_cast<uint64_t>(bytes.data()), static_cast<uint32_t>(bytes.size()), 0},
                          send_flag::inline_data, there->addr, there->rkey, nullptr);
}

bool Session::stream(const std::byte* local, uint32_t length, uint32_t lkey, uint64_t remote_addr,
                     uint32_t rkey, std::optional<uint32_t>* crc32c) {
  return write_unsignaled({reinterpret_cast<uint64_t>(local), length, lkey}, 0, remote_addr, rkey, crc32c);
}

bool Session::write_unsignaled(const Sge& piece, uint32_t flags, uint64_t remote_addr, uint32_t rkey,
                               std::optional<uint32_t>* crc32c) {
  metrics_->add(Count::write_ops);
  metrics_->add(Count::write_bytes, piece.length);
  if (Capture* capture = node_.capture()) [[unlikely]] {
    capture->record(Captured::write, id(), link_->port().name(), {.remote_addr = remote_addr, .rkey = rkey},
                    {reinterpret_cast<const std::byte*>(piece.addr), piece.length});
  }
  if (link_->post({.opcode = Opcode::write,
                   .flags = flags,
                   .rkey = rkey,
                   .remote_addr = remote_addr,
                   .local = {&piece, 1},
                   .crc32c = crc32c}) == PostError::none) {
    return true;
  }
  lose_link(Status::wr_flush_err, "the queue pair refused a write");
  return false;
}

bool Session::withdraw(const Registration& registration) {
  const auto drop = [&](Operation* operation) {
    if (operation->registration != &registration) return false;
    node_.operations().end(*operation);
    return true;
  };
  std::erase_if(pending_, drop);
  for (auto& [key, entry] : regions_) std::erase_if(entry.waiting, drop);
  const auto uses = [&](const Operation* operation) { return operation->registration == &registration; };
  const bool is_lost = link_ && link_->failed();  // its queue pair may still be open
  return !is_lost && std::none_of(posted_.begin(), posted_.end(), uses);
}

void Session::start_pull(const Message& message) {
  auto pull = std::make_shared<Pull>();
  pull->header = message.header;
  std::memcpy(&pull->reference, message.payload.data(), sizeof pull->reference);
  if (pull->reference.length > options_.max_message_bytes || pull->reference.length == 0) {
    return refuse_pull(*pull, Outcome::too_long, "the message is longer than this peer takes");
  }
  sequence_.hold(message.header.sequence);
  pulls_[message.header.sequence] = std::move(pull);
  continue_pull(message.header.sequence);
}

void Session::refuse_pull(const Pull& pull, Outcome outcome, std::string_view why) {
  sequence_.finish(pull.header.sequence);
  if (pull.header.kind == MessageKind::request) return fail(pull.header.call, outcome, why);
  Operation* operation = node_.operations().find(pull.header.call, *this);
  if (!operation || operation->opcode != Opcode::send || operation->finished.load(std::memory_order_relaxed))
    return;
  const auto text = std::as_bytes(std::span(why));
  operation->result.assign(text.begin(), text.end());
  finish(*operation, outcome);
}

// All pulled payloads together may take twice the memory of the longest message; further ones wait.
bool Session::admit(Pull& pull) {
  if (pull.admitted) return true;
  const uint64_t length = pull.reference.length;
  if (pulled_bytes_ > 0 && pulled_bytes_ + length > 2 * options_.max_message_bytes) return false;
  pull.memory = link_->port().context().allocate(length, {});
  pull.registration = std::make_unique<Registration>(pull.memory->data(), length, access::local_write);
  node_.registering([&] { pull.registration->on(link_->port()); });
  pull.admitted = true;
  pulled_bytes_ += length;
  return true;
}

void Session::continue_pull(uint64_t sequence) {
  const auto found = pulls_.find(sequence);
  if (found == pulls_.end()) return;
  const std::shared_ptr<Pull> pull = found->second;
  try {
    if (!admit(*pull)) return;
  } catch (const std::exception& error) {
    pulls_.erase(found);
    return refuse_pull(*pull, Outcome::busy, error.what());
  }
  while (pull->asked < pull->reference.length && pull->in_flight < kPullDepth && pulls_.contains(sequence)) {
    const auto length = static_cast<uint32_t>(
        std::min<uint64_t>(options_.fragment_bytes, pull->reference.length - pull->asked));
    Operation& read = node_.operations().begin(*this);
    read.started_ns = now_ns();
    read.opcode = Opcode::read;
    read.remote_addr = pull->reference.addr + pull->asked;
    read.rkey = pull->reference.rkey;
    read.local = pull->memory->data() + pull->asked;
    read.length = length;
    read.registration = pull->registration.get();
    read.then = [this, sequence, length](Operation& done) {
      const auto pulled = pulls_.find(sequence);
      if (pulled == pulls_.end() || done.outcome != Outcome::ok) return;
      --pulled->second->in_flight;
      pulled->second->arrived += length;
      continue_pull(sequence);
    };
    pull->asked += length;
    ++pull->in_flight;
    queue_operation(read);
  }
  if (pull->arrived == pull->reference.length) finish_pull(sequence);
}

void Session::finish_pull(uint64_t sequence) {
  const auto found = pulls_.find(sequence);
  if (found == pulls_.end()) return;
  const std::shared_ptr<Pull> pull = found->second;
  if (crc32c(0, pull->memory->data(), pull->reference.length) != pull->reference.crc) {
    metrics_->add(Count::damaged_messages);
    return lose_link(Status::bad_resp_err, "a long message was damaged");
  }
  pulls_.erase(found);
  pulled_bytes_ -= pull->reference.length;
  pull->registration->close();
  sequence_.finish(sequence);
  Bytes payload(pull->memory, pull->reference.length);
  deliver(pull->header, payload.span(), &payload);
  for (auto next = pulls_.begin(); next != pulls_.end(); ++next) {
    if (next->second->admitted) continue;
    continue_pull(next->first);
    break;
  }
  // The sender keeps the payload until this acknowledgement.
  if (link()) send_unsequenced(MessageKind::acknowledge);
}

}  // namespace verbena::transport
