#include "transport/node/node.h"

#include <sys/epoll.h>

#include <algorithm>

#include "transport/node/ids.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"

namespace verbena::transport {
namespace {

int make_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw Error("fd_limit", "create a node", "epoll_create1() failed", errno);
  return fd;
}

}  // namespace

Node::Node(const NodeOptions& options)
    : options_(options),
      epoll_(make_epoll()),
      registrations_(options.max_region_bytes),
      polled_(std::max(options.poll_batch, 1u)) {
  add_own_methods(*this);
  thread_ = std::jthread([this] { or_end_process("driving a node", [this] { run(); }); });
}

std::shared_ptr<Port> Node::add_port(std::shared_ptr<Port> port) {
  const auto held = lock();
  for (const auto& cq : port->queues()) watch(*cq);
  ports_.push_back(port);
  return port;
}

void Node::add_queue(Port& port, std::shared_ptr<CompletionQueue> cq) {
  const auto held = lock();
  watch(*cq);
  port.add_queue(std::move(cq));
}

void Node::retire(const Port& port) {
  const auto held = lock();
  const auto found =
      std::find_if(ports_.begin(), ports_.end(), [&](const auto& known) { return known.get() == &port; });
  if (found == ports_.end()) return;
  retired_ports_.push_back(std::move(*found));
  ports_.erase(found);
}

void Node::watch(const CompletionQueue& cq) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, cq.fileno(), &event) != 0) {
    throw Error("fd_limit", "add a wire to a node", "epoll_ctl() failed", errno);
  }
}

std::shared_ptr<Session> Node::add_session(SessionOptions options, std::shared_ptr<EventQueue> control,
                                           std::shared_ptr<EventQueue> requests) {
  const auto held = lock();
  const uint64_t id = options.id;
  auto session =
      std::make_shared<Session>(*this, std::move(options), std::move(control), std::move(requests));
  if (!sessions_.emplace(id, session).second) {
    throw Error("invalid_argument", "add a session", "there is one with this id already");
  }
  return session;
}

void Node::remove_session(Session& session) {
  const auto held = lock();
  session.release_link();
  sessions_.erase(session.id());
}

RevokedRegion Node::revoke(const ExposedRegion& region) {
  RevokedRegion revoked{regions_.remove(region.key), {}};
  for (const auto& [id, session] : sessions_) session->end_memory_lease(region.key);
  if (region.was_lent) {
    for (const auto& port : ports_) revoked.contexts.push_back(port->shared_context());
  }
  return revoked;
}

void Node::revoke(Audience& audience, uint64_t session) {
  audience.remove(session);
  if (const auto found = find_session(session)) found->end_memory_leases(audience);
}

void Node::handle(uint32_t method, std::shared_ptr<Handler> handler) {
  const auto held = lock();
  if (method < std::size(own_handlers_)) own_handlers_[method] = handler.get();
  handlers_[method] = std::move(handler);
}

void Node::close() {
  if (stopping_.exchange(true)) return;
  stop_event_.signal();
  if (thread_.joinable()) thread_.join();
  const auto held = lock();
  for (const auto& [id, session] : sessions_) {
    session->end("the node was closed");
    session->release_link();
  }
  sessions_.clear();
}

void Node::end(Operation& operation) {
  const auto held = lock();
  operations_.end(operation);
}

bool Node::drive_locked() {
  bool found = false;
  for (const auto& port : ports_) {
    for (const auto& cq : port->queues()) {
      const size_t count = cq->poll(polled_);
      for (size_t i = 0; i < count; ++i) handle_completion(*port, polled_[i]);
      if (count == 0) continue;
      found = true;
      port->flush_receives();
    }
  }
  return found;
}

void Node::handle_completion(Port& port, const Completion& completion) {
  Link* link = port.find(completion.qp_num);
  const uint64_t value = value_of(completion.id);
  if (tag_of(completion.id) != RequestTag::receive) {
    if (link && link->session && !link->failed()) link->session->on_completion(completion);
    return;
  }
  MessageBuffer* buffer = port.receives().at(static_cast<uint32_t>(value));
  if (completion.status == Status::success && link && !link->failed()) {
    if (!link->session) {
      link->early.emplace_back(buffer, completion.byte_count);
      return;
    }
    link->session->on_message({buffer->data, completion.byte_count});
  }
  port.repost(buffer);
}

void Node::tick_if_due(uint64_t now) {
  if (now - ticked_ns_ < kTickNs) return;
  ticked_ns_ = now;
  const uint64_t driven = clock_.advance(now);
  for (const auto& [id, session] : sessions_) {
    session->tick(now, driven, options_.heartbeat_ns, options_.silence_ns);
  }
}

}  // namespace verbena::transport
