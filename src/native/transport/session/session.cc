#include "transport/session/session.h"

#include <algorithm>

#include "transport/node/ids.h"
#include "transport/node/node.h"
#include "util/clock.h"

namespace verbena::transport {

Session::Session(Node& node, SessionOptions options, std::shared_ptr<EventQueue> control,
                 std::shared_ptr<EventQueue> requests)
    : node_(node),
      options_(std::move(options)),
      control_(std::move(control)),
      requests_(std::move(requests)),
      metrics_(std::make_shared<Metrics>()) {
  audience_->add(options_.id);
}

Session::~Session() = default;

void Session::attach(std::unique_ptr<Link> link, uint64_t received, uint64_t acknowledged, uint32_t window,
                     uint32_t peer_buffer_bytes) {
  lose_link(Status::success, "replaced", false);
  release_link();
  link_ = std::move(link);
  link_->session = this;
  ++links_;
  peer_buffer_bytes_ = peer_buffer_bytes;
  const auto same_wire = [this](const auto& entry) { return entry.first == link_->port().name(); };
  const auto known = std::find_if(metrics_by_wire_.begin(), metrics_by_wire_.end(), same_wire);
  if (known == metrics_by_wire_.end()) {
    metrics_by_wire_.emplace_back(link_->port().name(), std::make_shared<Metrics>());
    metrics_ = metrics_by_wire_.back().second;
  } else {
    metrics_ = known->second;
  }
  metrics_->add(Count::links);

  sequence_.set_window(window);
  if (!sequence_.acknowledge(received)) {
    return lose_link(Status::bad_resp_err, "the peer has received what was never sent");
  }
  acknowledged_to_peer_ = std::min(acknowledged, sequence_.done());
  forget_acknowledged();
  flush();
  for (const auto& [buffer, bytes] : std::exchange(link_->early, {})) {
    on_message({buffer->data, bytes});
    link_->port().repost(buffer);
  }
  link_->port().flush_receives();
  post_pending();
}

void Session::lose_link(Status status, std::string_view why, bool report) {
  if (!link()) return;
  link_->failed_ = true;
  for (size_t i = 0; i < transmitted_; ++i) {
    Outgoing& message = unacknowledged_[i];
    if (!message.offered) {
      const std::byte* payload = message.buffer->data + sizeof(MessageHeader);
      message.payload.assign(payload, payload + message.header.length);
    }
    message.repeated = true;
    link_->retired.push_back(std::exchange(message.buffer, nullptr));
  }
  transmitted_ = 0;
  for (auto& [sequence, pull] : pulls_) link_->kept.push_back(std::move(pull));
  pulls_.clear();
  pulled_bytes_ = 0;

  std::deque<Operation*> again;
  std::vector<Operation*> failed;
  for (Operation* operation : posted_) {
    if (operation->once) {
      failed.push_back(operation);
      continue;
    }
    if (operation->bounce) {
      if (passes_through_buffer(*operation)) keep_bytes(*operation, operation->bounce->data);
      link_->retired.push_back(std::exchange(operation->bounce, nullptr));
    }
    if (operation->region == 0) {
      node_.operations().end(*operation);  // part of a pull, which restarts when the message is replayed
    } else {
      again.push_back(operation);
    }
  }
  posted_.clear();
  pending_.insert(pending_.begin(), again.begin(), again.end());
  std::erase_if(pending_, [this](Operation* operation) {
    if (operation->region == 0) node_.operations().end(*operation);
    return operation->region == 0;
  });
  for (auto& [key, entry] : regions_) {
    pending_.insert(pending_.end(), entry.waiting.begin(), entry.waiting.end());
  }
  regions_.clear();
  for (Operation* operation : failed) {
    if (operation->status == Status::success) operation->status = Status::wr_flush_err;
    finish(*operation, Outcome::failed_status);
  }
  if (status != Status::success) {
    metrics_->add(Count::completion_errors);
    if (status == Status::retry_exc_err || status == Status::rnr_retry_exc_err) {
      metrics_->add(Count::retry_exceeded);
    }
  }
  if (report) {
    control_->push({.kind = EventKind::link_lost,
                    .status = status,
                    .session = id(),
                    .call = links_,
                    .payload = Bytes(why)});
  }
}

void Session::release_link() {
  if (!link()) link_.reset();
}

void Session::end(std::string_view why) {
  if (over_) return;
  lose_link(Status::success, why, false);
  over_ = true;
  pending_.clear();
  unacknowledged_.clear();
  unacknowledged_bytes_ = 0;
  transmitted_ = 0;
  std::vector<Operation*> open;
  node_.operations().each_of(*this, [&](Operation& operation) {
    if (!operation.finished.load(std::memory_order_relaxed)) open.push_back(&operation);
  });
  for (Operation* operation : open) {
    const auto text = std::as_bytes(std::span(why));
    operation->result.assign(text.begin(), text.end());
    finish(*operation, Outcome::session_failed);
  }
}

uint64_t Session::report(Operation& operation, std::shared_ptr<EventQueue> queue, uint64_t token) {
  const uint64_t name = OperationTable::id(operation) + 1;  // never 0
  operation.queue = std::move(queue);
  operation.token = token;
  if (operation.finished.load(std::memory_order_relaxed))
    finish(operation, operation.outcome);  // it failed before it was sent
  return name;
}

void Session::finish(Operation& operation, Outcome outcome) {
  operation.outcome = outcome;
  if (operation.then) {
    const auto then = std::move(operation.then);
    then(operation);
    return node_.operations().end(operation);
  }
  if (outcome != Outcome::ok) metrics_->add(Count::failed_calls);
  if (operation.opcode == Opcode::send) metrics_->call.record(now_ns() - operation.started_ns);
  if (operation.queue) {
    Bytes answer =
        operation.long_result.span().empty() ? Bytes(operation.result) : std::move(operation.long_result);
    operation.queue->push({.kind = EventKind::finished,
                           .outcome = outcome,
                           .status = operation.status,
                           .session = id(),
                           .token = operation.token,
                           .payload = std::move(answer)});
    return node_.operations().end(operation);
  }
  const EventFd* sleeper = operation.sleeper;
  operation.finished.store(true, std::memory_order_release);
  if (sleeper) sleeper->signal();
}

void Session::on_completion(const Completion& completion) {
  if (!link()) return;
  const uint64_t value = value_of(completion.id);
  const bool ok = completion.status == Status::success;
  if (tag_of(completion.id) == RequestTag::operation) {
    Operation& operation = node_.operations().at(static_cast<uint32_t>(value));
    link_->complete(operation.position);
    // The peer ends what it has lent on a link before this end knows that the link is being replaced. So the
    // operation asks for the region once more, on the next link, and learns whether it is refused.
    const bool may_ask = completion.status == Status::rem_access_err && operation.region != 0 &&
                         !operation.once && !std::exchange(operation.was_refused, true);
    if (ok || (is_own_fault(completion.status) && !may_ask)) finish_operation(operation, completion.status);
  } else if (ok) {
    link_->complete(value);
  } else {
    blame_gathered(value, completion.status);
  }
  if (!ok) return lose_link(completion.status, "a request failed");
  flush();
  if (!pending_.empty()) post_pending();
}

// A request that failed may be one of several that complete as one operation: then its status is theirs.
void Session::blame_gathered(uint64_t position, Status status) {
  for (Operation* operation : posted_) {
    if (operation->position < position || operation->position - position >= operation->requests) continue;
    operation->status = status;
    return;
  }
}

void Session::tick(uint64_t now, uint64_t driven, uint64_t heartbeat_ns, uint64_t silence_ns) {
  if (!link()) return;
  Link& link = *link_;
  if (link.received_since_tick || link.last_received_ns == 0)
    link.received_since_tick = false, link.last_received_ns = driven;
  if (link.sent_since_tick || link.last_sent_ns == 0) link.sent_since_tick = false, link.last_sent_ns = now;
  if (driven - link.last_received_ns > silence_ns) {
    return lose_link(Status::retry_exc_err, "no message came from the peer");
  }
  if (sequence_.done() > acknowledged_to_peer_) {
    send_unsequenced(MessageKind::acknowledge);
  } else if (now - link.last_sent_ns > heartbeat_ns) {
    send_unsequenced(MessageKind::ping);
  }
  flush();
  post_pending();
}

}  // namespace verbena::transport
