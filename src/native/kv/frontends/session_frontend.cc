#include "kv/frontends/session_frontend.h"

#include <algorithm>
#include <cstring>

#include "kv/protocol/session_layout.h"
#include "util/bytes.h"
#include "util/fatal.h"

namespace verbena::kv {

namespace {

constexpr size_t kMostStreams = 1024;   // of one session
constexpr size_t kHeadroom = 4u << 20;  // for the growth of the index
constexpr uint64_t kSweepNs = 200'000'000;
// For failures that concern one stream only.
constexpr const char *kServing = "serving a session", *kConsequence = "its call fails";
constexpr std::string_view kNoMemory = "the store has not enough memory for this request";

}  // namespace

// May be called from within Python, where the node's lock must not be taken: the loop sends the output later.
void SessionClient::queue_write() {
  frontend.loop_.post([to = &frontend, of = session, number = stream] {
    try {
      to->flush(of, number);
    } catch (const std::exception&) {
      to->fail_stream(of, number, 0);
    }
  });
}

SessionFrontend::SessionFrontend(Engine& engine, EventLoop& loop, std::shared_ptr<transport::Node> node,
                                 std::shared_ptr<transport::Audience> audience)
    : engine_(engine), loop_(loop), node_(std::move(node)), audience_(std::move(audience)) {
  constexpr std::pair<const char*, Method> kMethods[] = {{session_method::kRequest, Method::request},
                                                         {session_method::kReceive, Method::receive},
                                                         {session_method::kClose, Method::close},
                                                         {session_method::kLayout, Method::layout}};
  {
    const auto held = engine_.lock();
    loop_.on_tick([this](uint64_t now) { sweep(now); });
  }
  for (const auto& [name, method] : kMethods) {
    node_->handle(transport::method::of_name(name), std::make_shared<MethodHandler>(*this, method));
  }
}

void SessionFrontend::handle_request(Method method, const transport::Request& request) {
  try {
    take(method, request);
  } catch (const std::exception&) {
    report(kServing, kConsequence);
    request.session.fail(request.call, transport::Outcome::remote_failure, kNoMemory);
  }
}

// The node's thread must not wait for the engine, which may wait for the node's lock: a request that finds
// the engine busy is queued for the loop.
void SessionFrontend::take(Method method, const transport::Request& request) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  const std::string_view payload = text_of(request.payload);
  if (payload.size() < sizeof(StreamHeader)) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, "the request is too short");
  }
  const uint64_t session = request.session.id();
  size_t used = sizeof(StreamHeader);
  if (method == Method::request && queued_.load(std::memory_order_acquire) == 0) {
    if (const auto held = engine_.lock_soon()) {
      StreamHeader header;
      std::memcpy(&header, payload.data(), sizeof header);
      const auto found = clients_.find({session, header.stream});
      if (found != clients_.end() && can_run_inline(*found->second, request.session, payload.size() - used)) {
        used += run_inline(*found->second, request, payload.substr(used));
        if (used == payload.size()) return;
      }
    }
  }
  const auto queue_rest = [&] {
    queue(method, session, request.call,
          std::string(payload.substr(0, sizeof(StreamHeader))).append(payload.substr(used)));
  };
  if (used == sizeof(StreamHeader)) return queue_rest();
  // The replies of commands that ran inline are still in `out`: the loop adds the replies of the other
  // commands, and then answers the call with all of them.
  or_end_process("queueing the rest of a request", queue_rest);
}

// True: no earlier input or output of the client is pending, and a native command needs neither Python nor
// the disk.
bool SessionFrontend::can_run_inline(const SessionClient& client, const transport::Session& session,
                                     size_t bytes) const {
  if (session.unacknowledged_bytes() >= Engine::kMaxWaitingReplyBytes || client.stalled ||
      client.python_dispatch || client.unauthenticated || client.blocked || client.close_now ||
      client.close_after_reply || !client.in.empty() || !client.out.empty() || engine_.python_dispatch ||
      engine_.notifications() || engine_.log() || bytes == 0) {
    return false;
  }
  // Python allocates new chunks and may take the node's lock for it: a request that may need one is queued.
  return engine_.keyspace.arena().spare_bytes() >= 4 * bytes + kHeadroom;
}

size_t SessionFrontend::run_inline(SessionClient& client, const transport::Request& request,
                                   std::string_view bytes) {
  try {
    client.write_scheduled = true;  // the reply to this call carries `out`: no queue_write()
    const size_t used = engine_.feed_native(client, bytes);
    client.write_scheduled = false;
    engine_.commit();  // does not block: can_run_inline() requires that there is no log on disk
    if (engine_.has_pending_events()) loop_.wake();
    if (used < bytes.size()) return used;
    if (request.session.reply(request.call, bytes_of(client.out))) {
      client.bytes_out += client.out.size();
      client.out.clear();
    } else {
      request.session.reply(request.call, {});
      client.queue_write();
    }
    if (client.close_now || client.close_after_reply) client.queue_write();
    return used;
  } catch (const std::exception&) {
    client.write_scheduled = false;
    engine_.fail_client(client, kServing);
    throw;
  }
}

void SessionFrontend::queue(Method method, uint64_t session, uint64_t call, std::string payload) {
  queued_.fetch_add(1, std::memory_order_relaxed);
  try {
    loop_.post([this, method, session, call, payload = std::move(payload)] {
      queued_.fetch_sub(1, std::memory_order_release);
      try {
        serve(method, session, call, payload);
      } catch (const std::exception&) {
        StreamHeader header;
        std::memcpy(&header, payload.data(), sizeof header);
        fail_stream(session, header.stream, call);
      }
    });
  } catch (...) {
    queued_.fetch_sub(1, std::memory_order_release);
    throw;
  }
}

void SessionFrontend::fail_stream(uint64_t session, uint32_t stream, uint64_t call) {
  report(kServing, kConsequence);
  const auto client = clients_.find({session, stream});
  {
    const auto held = lock_node();
    const auto found = node_->find_session(session);
    const auto fail = [&](uint64_t open) {
      if (found && !found->is_over()) found->fail(open, transport::Outcome::remote_failure, kNoMemory);
    };
    if (call != 0) fail(call);
    if (client != clients_.end() && std::exchange(client->second->is_receiving, false)) {
      if (client->second->receiving != call) fail(client->second->receiving);
    }
  }
  if (client != clients_.end()) close(*client->second);
}

void SessionFrontend::serve(Method method, uint64_t session, uint64_t call, std::string_view payload) {
  StreamHeader header;
  std::memcpy(&header, payload.data(), sizeof header);
  if (closed_.contains({session, header.stream})) {
    if (method == Method::close) closed_.erase({session, header.stream});  // the client is done with it
    return refuse(session, call);
  }
  SessionClient& from = client(session, header.stream);
  switch (method) {
    case Method::request:
      note_unacknowledged(from);
      from.write_scheduled = true;
      engine_.feed(from, payload.substr(sizeof header));
      from.write_scheduled = false;
      engine_.commit();
      // The commit failed: the client receives that error instead of its replies, and the stream ends.
      if (from.close_now && from.out.empty() && !engine_.refusal().empty()) {
        ReplyWriter(from.out, from.version).error(engine_.refusal());
      }
      if (from.close_now && from.out.empty()) {
        refuse(session, call);
        return close(from);
      }
      if (!reply_all(from, call)) return flush(session, header.stream);
      break;
    case Method::receive:
      if (from.is_receiving) reply(from, from.receiving, {});  // only one may wait: the earlier one ends
      from.is_receiving = true;
      from.receiving = call;
      return flush(session, header.stream);
    case Method::close:
      reply(from, call, {});
      return remove(from);
    case Method::layout:
      reply(from, call, layout(from));  // empty: the client sends commands instead of one-sided reads
      return;
  }
  if (from.close_now || from.close_after_reply) return close(from);
  if (from.stalled) resume_later(from);
}

void SessionFrontend::resume_later(const SessionClient& client) {
  loop_.post([this, session = client.session, stream = client.stream] {
    try {
      resume(session, stream);
    } catch (const std::exception&) {
      fail_stream(session, stream, 0);
    }
  });
}

void SessionFrontend::resume(uint64_t session, uint32_t stream) {
  const auto found = clients_.find({session, stream});
  if (found == clients_.end() || !found->second->stalled) return;
  SessionClient& client = *found->second;
  note_unacknowledged(client);
  if (client.unsent_bytes.load(std::memory_order_relaxed) > 0) return waiting_.push_back({session, stream});
  engine_.resume_stalled(client);
  engine_.commit();
  flush(session, stream);
}

void SessionFrontend::note_unacknowledged(SessionClient& client) {
  const auto held = lock_node();
  const auto found = node_->find_session(client.session);
  const uint64_t bytes = found ? found->unacknowledged_bytes() : 0;
  client.unsent_bytes.store(bytes >= Engine::kMaxWaitingReplyBytes ? bytes : 0, std::memory_order_relaxed);
}

SessionClient& SessionFrontend::client(uint64_t session, uint32_t stream) {
  if (const auto found = clients_.find({session, stream}); found != clients_.end()) return *found->second;
  const auto first = clients_.lower_bound({session, 0});
  const auto last = clients_.lower_bound({session + 1, 0});
  auto client = std::make_unique<SessionClient>(*this, engine_.next_client(), session, stream);
  client->address = peer_of(session);
  loop_.prepare(*client);
  if (static_cast<size_t>(std::distance(first, last)) >= kMostStreams) client->close_now = true;
  // Protected mode does not apply: peers on other machines have proved a secret or a certificate.
  if (const std::string_view why = loop_.rejection("session"); !why.empty()) {
    client->out = why;
    client->close_after_reply = true;
  }
  SessionClient& added = *clients_.emplace(std::pair(session, stream), std::move(client)).first->second;
  try {
    engine_.add(added);
    // Python decides as which user the stream begins. add() has asked it already if python_dispatch is set.
    if (engine_.handler() && !added.python_dispatch) engine_.handler()->opened(added);
  } catch (...) {
    clients_.erase({session, stream});
    throw;
  }
  return added;
}

std::string SessionFrontend::peer_of(uint64_t session) {
  const auto held = lock_node();
  const auto found = node_->find_session(session);
  return found ? found->peer() : "session:" + std::to_string(session);
}

void SessionFrontend::remove(SessionClient& client) {
  if (client.has_memory_lease) {
    if (engine_.handler()) engine_.handler()->release_gil();
    end_memory_lease(client);
  }
  if (client.is_receiving) reply_part(client);
  engine_.keyspace.unwatch(client.id);
  engine_.remove(client);
  clients_.erase({client.session, client.stream});
}

void SessionFrontend::close(SessionClient& client) {
  const uint64_t session = client.session;
  if (client.is_receiving && client.out.empty()) {
    client.is_receiving = false;
    refuse(session, client.receiving);
  }
  closed_.insert({session, client.stream});
  const auto first = closed_.lower_bound({session, 0});
  const auto last = closed_.lower_bound({session + 1, 0});
  // Numbers only rise: a client has long forgotten the first.
  if (static_cast<size_t>(std::distance(first, last)) > kMostStreams) closed_.erase(first);
  remove(client);
}

void SessionFrontend::refuse(uint64_t session, uint64_t call) {
  const auto held = lock_node();
  if (const auto found = node_->find_session(session)) {
    found->fail(call, transport::Outcome::remote_failure, kStreamClosed);
  }
}

// Sends output that belongs to no request that is being answered: a push, or the reply of a blocked command.
// It waits in `out` until the client has a kv.receive call open.
void SessionFrontend::flush(uint64_t session, uint32_t stream) {
  const auto found = clients_.find({session, stream});
  if (found == clients_.end()) return;
  SessionClient& to = *found->second;
  to.write_scheduled = false;
  const bool sends = !to.close_now && to.is_receiving && !to.out.empty();
  if (sends) reply_part(to);
  if (to.close_now || (to.close_after_reply && to.out.empty())) return close(to);
  if (sends && to.stalled) resume_later(to);
}

void SessionFrontend::sweep(uint64_t now) {
  for (const auto& [session, stream] : std::exchange(waiting_, {})) resume(session, stream);
  if (now - swept_ns_ < kSweepNs || (clients_.empty() && closed_.empty())) return;
  swept_ns_ = now;
  std::vector<SessionClient*> gone;
  {
    const auto held = lock_node();
    for (const auto& [name, client] : clients_) {
      if (!node_->find_session(client->session)) gone.push_back(client.get());
    }
    std::erase_if(closed_, [this](const StreamName& name) { return !node_->find_session(name.first); });
  }
  for (SessionClient* client : gone) remove(*client);
}

// Releases the GIL first, because the holder of the node's lock may wait for the GIL. So this must never be
// called from within Python.
std::unique_lock<YieldingMutex> SessionFrontend::lock_node() {
  if (engine_.handler()) engine_.handler()->release_gil();
  return node_->lock();
}

bool SessionFrontend::reply(const SessionClient& to, uint64_t call, std::string_view bytes) {
  const auto held = lock_node();
  const auto found = node_->find_session(to.session);
  if (!found || found->is_over() || found->reply(call, bytes_of(bytes))) return true;
  found->reply(call, {});
  return false;
}

// False: the output is too long for one message. The client then fetches it in parts with kv.receive, one
// part after the other, because two parts in flight could overtake each other.
bool SessionFrontend::reply_all(SessionClient& to, uint64_t call) {
  if (!reply(to, call, to.out)) return false;
  to.bytes_out += to.out.size();
  to.out.clear();
  return true;
}

void SessionFrontend::reply_part(SessionClient& to) {
  const auto held = lock_node();
  to.is_receiving = false;
  const auto found = node_->find_session(to.session);
  size_t sent = to.out.size();
  if (found && !found->is_over()) {
    sent = std::min<size_t>(sent, found->max_message_bytes());
    found->reply(to.receiving, bytes_of(std::string_view(to.out).substr(0, sent)));
  }
  to.bytes_out += sent;
  to.out.erase(0, sent);
}

}  // namespace verbena::kv
