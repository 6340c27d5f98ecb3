#include "kv/frontends/rdma_frontend.h"

#include "util/clock.h"
#include "util/fatal.h"

namespace verbena::kv {

// For pushes and the replies of blocked commands: the loop sends them in its next turn.
void RdmaClient::queue_write() {
  frontend.loop_.post([to = &frontend, number = id] { to->serve(number); });
}

RdmaFrontend::RdmaFrontend(Engine& engine, EventLoop& loop) : engine_(engine), loop_(loop) {
  const auto held = engine_.lock();
  loop_.on_tick([this](uint64_t now) {
    std::vector<uint64_t> due;
    for (const auto& [id, client] : clients_) {
      if (now - client->last_sent_ns >= kKeepaliveNs) due.push_back(id);
    }
    for (const uint64_t id : due) {
      clients_[id]->last_sent_ns = now;
      clients_[id]->keep_alive_due = true;
      serve(id);
    }
  });
}

void RdmaFrontend::admit(std::unique_ptr<ValkeyRdmaLink> link, std::shared_ptr<QueuePair> qp,
                         std::shared_ptr<Connection> connection, std::shared_ptr<void> kept) {
  const auto held = engine_.lock();
  // Asked again: other clients may have come while this connection was established.
  if (!loop_.rejection(connection->peer()).empty()) return connection->disconnect();
  auto made =
      std::make_unique<RdmaClient>(*this, engine_.next_client(), std::move(link), std::move(connection));
  RdmaClient& client = *made;
  client.address = client.connection->peer();
  loop_.prepare(client);
  client.last_sent_ns = now_ns();
  client.kept = std::move(kept);
  client.link->start(std::move(qp));
  clients_.emplace(client.id, std::move(made));
  try {
    engine_.add(client);
    const auto serve_client = [this, id = client.id] { serve(id); };
    client.cq_watch = loop_.watch(client.link->cq().fileno(), serve_client);
    client.connection_watch = loop_.watch(client.connection->fileno(), serve_client);
    loop_.post(serve_client);
  } catch (...) {
    remove(client);
    throw;
  }
}

void RdmaFrontend::serve(uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  try {
    serve(*found->second);
  } catch (const std::exception&) {
    report("serving a Valkey-RDMA client", "the client is disconnected");
    remove(*found->second);
  }
}

void RdmaFrontend::serve(RdmaClient& client) {
  ValkeyRdmaLink& link = *client.link;
  client.write_scheduled = true;  // flush() below sends the replies, so queue_write() is not needed
  client.connection->acknowledge();
  link.cq().acknowledge();
  link.cq().arm(false);
  if (std::exchange(client.keep_alive_due, false)) link.keep_alive();
  engine_.resume_stalled(client);
  while (link.drive()) {
    const std::string_view bytes = link.arrived();
    if (bytes.empty() || (client.stalled && client.in.size() >= Engine::kMaxStalledInputBytes)) break;
    copy_.assign(bytes);  // the client can change its window while commands run
    engine_.feed(client, copy_);
    link.consume(copy_.size());
  }
  client.write_scheduled = false;
  flush(client);
  if (client.stalled && client.out.empty()) client.queue_write();  // continues in the next turn
  const bool gone = client.connection->state() != ConnectionState::established;
  if (gone || link.is_over() || client.close_now ||
      (client.close_after_reply && client.out.empty() && !link.has_unsent())) {
    remove(client);
  }
}

void RdmaFrontend::flush(RdmaClient& client) {
  if (client.out.empty()) return;
  engine_.commit();
  const size_t sent = client.link->send(client.out);
  client.out.erase(0, sent);
  client.bytes_out += sent;
  engine_.counters.bytes_out += sent;
  if (sent > 0) client.last_sent_ns = now_ns();
}

void RdmaFrontend::remove(RdmaClient& client) {
  loop_.unwatch(client.cq_watch, client.link->cq().fileno());
  loop_.unwatch(client.connection_watch, client.connection->fileno());
  engine_.keyspace.unwatch(client.id);
  engine_.remove(client);
  client.connection->disconnect();
  clients_.erase(client.id);
}

void RdmaFrontend::close() {
  const auto held = engine_.lock();
  while (!clients_.empty()) remove(*clients_.begin()->second);
}

}  // namespace verbena::kv
