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
      metrics_(std::make_shared<Metrics>()) {}

Session::~Session() = default;

void Session::attach(std::unique_ptr<Link> link, uint64_t received, uint64_t told, uint32_t window,
                     uint32_t peer_slot_bytes) {
  lose_link(Status::success, "replaced", false);
  release_link();
  link_ = std::move(link);
  link_->session = this;
  ++links_;
  peer_slot_bytes_ = peer_slot_bytes;
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
  acknowledged_to_peer_ = std::min(told, sequence_.done());
  forget_acknowledged();
  flush();
  for (const auto& [slot, bytes] : std::exchange(link_->early, {})) {
    on_message({slot->data, bytes});
    link_->port().repost(slot);
  }
  link_->port().flush_receives();
  post_pending();
}

void Session::lose_link(Status status, std::string_view why, bool tell) {
  if (!link()) return;
  link_->failed_ = true;
  for (size_t i = 0; i < transmitted_; ++i) {
    Outgoing& message = unacknowledged_[i];
    if (!message.offered) {
      const std::byte* payload = message.slot->data + sizeof(MessageHeader);
      message.payload.assign(payload, payload + message.header.length);
    }
    message.repeated = true;
    link_->retired.push_back(std::exchange(message.slot, nullptr));
  }
  transmitted_ = 0;
  for (auto& [sequence, pull] : pulls_) link_->kept.push_back(std::move(pull));
  pulls_.clear();
  pulled_bytes_ = 0;

  std::deque<Call*> again;
  std::vector<Call*> failed;
  for (Call* call : posted_) {
    if (call->once) {
      failed.push_back(call);
      continue;
    }
    if (call->bounce) {
      if (passes_through_slot(*call)) keep_bytes(*call, call->bounce->data);
      link_->retired.push_back(std::exchange(call->bounce, nullptr));
    }
    if (call->region == 0) {
      node_.calls().end(*call);  // of a pull: it begins again when the message does
    } else {
      again.push_back(call);
    }
  }
  posted_.clear();
  pending_.insert(pending_.begin(), again.begin(), again.end());
  std::erase_if(pending_, [this](Call* call) {
    if (call->region == 0) node_.calls().end(*call);
    return call->region == 0;
  });
  for (auto& [key, entry] : regions_) {
    pending_.insert(pending_.end(), entry.waiting.begin(), entry.waiting.end());
  }
  regions_.clear();
  for (Call* call : failed) {
    call->status = Status::wr_flush_err;
    finish(*call, Outcome::failed_status);
  }
  if (status != Status::success) {
    metrics_->add(Count::completion_errors);
    if (status == Status::retry_exc_err || status == Status::rnr_retry_exc_err) {
      metrics_->add(Count::retry_exceeded);
    }
  }
  if (tell) {
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
  transmitted_ = 0;
  std::vector<Call*> open;
  node_.calls().each_of(*this, [&](Call& call) {
    if (!call.finished.load(std::memory_order_relaxed)) open.push_back(&call);
  });
  for (Call* call : open) {
    const auto text = std::as_bytes(std::span(why));
    call->result.assign(text.begin(), text.end());
    finish(*call, Outcome::session_failed);
  }
}

uint64_t Session::report(Call& call, std::shared_ptr<EventQueue> queue, uint64_t token) {
  const uint64_t name = CallTable::id(call) + 1;  // never 0
  call.queue = std::move(queue);
  call.token = token;
  if (call.finished.load(std::memory_order_relaxed)) finish(call, call.outcome);  // it could not even begin
  return name;
}

void Session::finish(Call& call, Outcome outcome) {
  call.outcome = outcome;
  if (call.then) {
    const auto then = std::move(call.then);
    then(call);
    return node_.calls().end(call);
  }
  if (outcome != Outcome::ok) metrics_->add(Count::failed_calls);
  if (call.opcode == Opcode::send) metrics_->call.record(now_ns() - call.started_ns);
  if (call.queue) {
    Bytes answer = call.long_result.span().empty() ? Bytes(call.result) : std::move(call.long_result);
    call.queue->push({.kind = EventKind::finished,
                      .outcome = outcome,
                      .status = call.status,
                      .session = id(),
                      .token = call.token,
                      .payload = std::move(answer)});
    return node_.calls().end(call);
  }
  const EventFd* sleeper = call.sleeper;
  call.finished.store(true, std::memory_order_release);
  if (sleeper) sleeper->signal();
}

void Session::on_completion(const Completion& completion) {
  if (!link()) return;
  const uint64_t value = value_of(completion.id);
  const bool ok = completion.status == Status::success;
  if (tag_of(completion.id) == RequestTag::operation) {
    Call& call = node_.calls().at(static_cast<uint32_t>(value));
    link_->complete(call.position);
    if (ok || is_own_fault(completion.status)) finish_operation(call, completion.status);
  } else if (ok) {
    link_->complete(value);
  }
  if (!ok) return lose_link(completion.status, "a request failed");
  flush();
  if (!pending_.empty()) post_pending();
}

void Session::tick(uint64_t now, uint64_t heartbeat_ns, uint64_t silence_ns) {
  if (!link()) return;
  Link& link = *link_;
  if (link.heard || link.heard_ns == 0) link.heard = false, link.heard_ns = now;
  if (link.spoke || link.spoke_ns == 0) link.spoke = false, link.spoke_ns = now;
  if (now - link.heard_ns > silence_ns) {
    return lose_link(Status::retry_exc_err, "nothing was heard from the peer");
  }
  if (sequence_.done() > acknowledged_to_peer_) {
    send_unsequenced(MessageKind::acknowledge);
  } else if (now - link.spoke_ns > heartbeat_ns) {
    send_unsequenced(MessageKind::ping);
  }
  flush();
  post_pending();
}

}  // namespace verbena::transport
