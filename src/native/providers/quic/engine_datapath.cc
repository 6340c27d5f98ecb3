// Datagrams: dispatch to connections, first packets of clients, and timers.
#include <sys/epoll.h>

#include <algorithm>

#include "providers/quic/engine.h"
#include "util/clock.h"

namespace verbena::quic {
namespace {

constexpr size_t kMinInitialBytes = 1200;  // RFC 9000, 14.1: a client's first datagram is not shorter
constexpr uint64_t kTokenLifetimeNs = 10'000'000'000;
constexpr uint64_t kIdleConnectionNs = 5'000'000'000;  // kept for the next queue pair
constexpr uint64_t kIdleCheckNs = 1'000'000'000;
constexpr size_t kMaxUnvalidatedHalfOpen = 64;  // above this, clients must prove their address
constexpr int kBatchesPerTurn = 4;

bool is_early_data(std::span<const std::byte> datagram) {
  // Long header, version 1, packet type 1.
  return datagram.size() > 5 && (std::to_integer<unsigned>(datagram[0]) & 0xb0) == 0x90 &&
         std::to_integer<unsigned>(datagram[4]) == 1;
}

}  // namespace

void Engine::receive(int socket) {
  progress_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(socket);
  if (found == endpoints_.end()) return;
  const auto endpoint = found->second;
  if (endpoint->is_blocked() && endpoint->flush()) {
    for (const auto& connection : connections_) {
      if (connection->endpoint() == endpoint) touch(*connection);
    }
  }
  receive_from(*endpoint);
  watch_socket(*endpoint);
}

void Engine::receive_from(Endpoint& endpoint) {
  // Never earlier than a time that ngtcp2 has seen before, or its round-trip times would be wrong.
  uint64_t now = now_ns();
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const size_t batches =
        endpoint.receive([&](std::span<const std::byte> datagram, const Endpoint::Route& route) {
          take(endpoint, datagram, route, now);
        });
    if (batches == 0) break;
    finish();
    now = now_ns();
  }
  endpoint.read_errors([&](const SocketAddress& absent) {
    for (const auto& connection : std::set(connections_)) {
      if (connection->endpoint().get() == &endpoint && same_address(connection->peer(), absent)) {
        connection->peer_unreachable(now);
      }
    }
  });
  finish();
}

void Engine::take(Endpoint& endpoint, std::span<const std::byte> datagram, const Endpoint::Route& route,
                  uint64_t now) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(datagram.data());
  ngtcp2_version_cid called{};
  const int result = library().ngtcp2_pkt_decode_version_cid(&called, bytes, datagram.size(), kIdBytes);
  if (result == NGTCP2_ERR_VERSION_NEGOTIATION)
    return negotiate_version(endpoint, called, datagram.size(), route);
  if (result != 0) {
    ++counters_.garbage;
    return;
  }
  const std::string id(reinterpret_cast<const char*>(called.dcid), called.dcidlen);
  if (const auto found = ids_.find(id); found != ids_.end()) {
    if (found->second->endpoint().get() != &endpoint) {
      ++counters_.garbage;
      return;
    }
    return found->second->read(datagram, route, now);
  }
  if (const auto found = closed_by_id_.find(id); found != closed_by_id_.end()) {
    // Ever less often (1, 2, 4, 8 …), so that a peer that ignores it cannot cause traffic.
    ClosedConnection& closed = *found->second;
    if (const uint64_t datagrams = ++closed.datagrams; (datagrams & (datagrams - 1)) == 0) {
      endpoint.send(route, closed.packet, closed.packet.size());
    }
    return;
  }
  handle_initial(endpoints_[endpoint.socket()], datagram, route, now);
}

void Engine::handle_initial(const std::shared_ptr<Endpoint>& endpoint, std::span<const std::byte> datagram,
                            const Endpoint::Route& route, uint64_t now) {
  ngtcp2_pkt_hd head;
  const int result =
      library().ngtcp2_accept(&head, reinterpret_cast<const uint8_t*>(datagram.data()), datagram.size());
  if (is_early_data(datagram)) {
    ++counters_.early_data;
    return;
  }
  if (!endpoint->is_listening || datagram.size() < kMinInitialBytes ||
      (result != 0 && result != NGTCP2_ERR_RETRY)) {
    ++counters_.garbage;
    return;
  }
  Connection::InitialPacket initial;
  initial.client_id = head.scid;
  initial.chosen_id = initial.original_id = head.dcid;
  initial.version = head.version;
  const bool has_token = head.token.len > 0;
  if (has_token && !check_token(head, route, initial, now)) {
    ++counters_.garbage;
    return;
  }
  if (!initial.was_retried && (result == NGTCP2_ERR_RETRY || half_open_ >= kMaxUnvalidatedHalfOpen)) {
    return send_retry(*endpoint, head, route, now);
  }
  if (half_open_ >= options_.stream.max_handshakes) {
    ++counters_.rejected_handshakes;
    return;
  }
  try {
    auto connection = std::make_shared<Connection>(*this, endpoint, route, initial);
    connections_.insert(connection);
    connection->is_counted_half_open = true;
    ++half_open_;
    connection->read(datagram, route, now);
  } catch (const std::exception&) {
    ++counters_.rejected_handshakes;
  }
}

bool Engine::check_token(const ngtcp2_pkt_hd& head, const Endpoint::Route& route,
                         Connection::InitialPacket& initial, uint64_t now) {
  ngtcp2_cid original;
  const int result = library().ngtcp2_crypto_verify_retry_token(
      &original, head.token.base, head.token.len, token_secret_.data(), token_secret_.size(), head.version,
      route.remote.get(), route.remote.length, &head.dcid, kTokenLifetimeNs, now);
  if (result != 0) return false;
  initial.was_retried = true;
  initial.original_id = original;
  initial.token = {head.token.base, head.token.len};
  return true;
}

void Engine::send_retry(Endpoint& endpoint, const ngtcp2_pkt_hd& head, const Endpoint::Route& route,
                        uint64_t now) {
  const Library& lib = library();
  ngtcp2_cid own{};
  own.datalen = kIdBytes;
  lib.gnutls_rnd(GNUTLS_RND_NONCE, own.data, own.datalen);
  uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN];
  const ngtcp2_ssize token_size =
      lib.ngtcp2_crypto_generate_retry_token(token, token_secret_.data(), token_secret_.size(), head.version,
                                             route.remote.get(), route.remote.length, &own, &head.dcid, now);
  if (token_size < 0) return;
  uint8_t packet[512];
  const ngtcp2_ssize size =
      lib.ngtcp2_crypto_write_retry(packet, sizeof packet, head.version, &head.scid, &own, &head.dcid, token,
                                    static_cast<size_t>(token_size));
  if (size <= 0) return;
  ++counters_.retries;
  endpoint.send(route, {reinterpret_cast<const std::byte*>(packet), static_cast<size_t>(size)},
                static_cast<size_t>(size));
}

void Engine::negotiate_version(Endpoint& endpoint, const ngtcp2_version_cid& called, size_t size,
                               const Endpoint::Route& route) {
  ++counters_.version_negotiations;
  if (!endpoint.is_listening || size < kMinInitialBytes) return;
  const uint32_t versions[] = {NGTCP2_PROTO_VER_V1};
  uint8_t unused = 0;
  library().gnutls_rnd(GNUTLS_RND_NONCE, &unused, 1);
  uint8_t packet[512];
  const ngtcp2_ssize length = library().ngtcp2_pkt_write_version_negotiation(
      packet, sizeof packet, unused, called.scid, called.scidlen, called.dcid, called.dcidlen, versions, 1);
  if (length <= 0) return;
  endpoint.send(route, {reinterpret_cast<const std::byte*>(packet), static_cast<size_t>(length)},
                static_cast<size_t>(length));
}

void Engine::check_timers(uint64_t now) {
  progress_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  if (now < deadline_ns_.load(std::memory_order_relaxed) && now < idle_check_ns_) return;
  const std::lock_guard lock(mutex_);
  now = now_ns();  // this thread may have waited for the lock
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const std::shared_ptr<Connection> connection = timers_.begin()->second->shared_from_this();
    timers_.erase(timers_.begin());
    connection->timer_ns = UINT64_MAX;
    connection->handle_expiry(now);
    touch(*connection);
  }
  deadline_ns_.store(timers_.empty() ? UINT64_MAX : timers_.begin()->first, std::memory_order_relaxed);
  finish();
  if (now < idle_check_ns_) return;
  idle_check_ns_ = now + kIdleCheckNs;
  while (!closed_.empty() && closed_.front()->until <= now) {
    for (const std::string& id : closed_.front()->ids) closed_by_id_.erase(id);
    closed_.pop_front();
  }
  close_idle(now);
}

void Engine::close_idle(uint64_t now) {
  for (const auto& connection : std::set(connections_)) {
    const bool is_idle = connection->role() == Connection::Role::client && connection->is_idle();
    if (is_idle && now - connection->idle_since_ns >= kIdleConnectionNs) connection->close(now);
  }
  std::erase_if(endpoints_, [&](const auto& entry) {
    const auto& endpoint = entry.second;
    // A closed listener's endpoint stays while it has connections.
    const bool is_caller = std::any_of(client_endpoints_.begin(), client_endpoints_.end(),
                                       [&](const auto& client) { return client.second == endpoint; });
    const bool is_used = endpoint->is_listening || is_caller ||
                         std::any_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
                           return connection->endpoint() == endpoint;
                         });
    if (!is_used) epoll_ctl(epoll_, EPOLL_CTL_DEL, endpoint->socket(), nullptr);
    return !is_used;
  });
}

}  // namespace verbena::quic
