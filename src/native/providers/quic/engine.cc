#include "providers/quic/engine.h"

#include <sys/epoll.h>

#include <algorithm>

#include "providers/quic/stream.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/random.h"

namespace verbena::quic {
namespace {

constexpr uint64_t kLongWindow = 8 << 20;
// With a small receive buffer, more than it holds would be lost.
constexpr uint64_t kShortWindow = 1 << 20;
constexpr size_t kLargeBuffer = 4 << 20;

}  // namespace

Engine::Engine(const Options& options)
    : options_(options),
      credentials_(options.stream.tls.value_or(net::TlsOptions{}), options.revoked),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(Endpoint::kMaxBatchBytes + 65536)),
      token_secret_(random_value<std::array<uint8_t, 32>>()) {}

Engine::~Engine() { close(); }

void Engine::start(int epoll, uint64_t tag, void (*wake)(void*), void* wake_argument) {
  epoll_ = epoll;
  tag_ = tag;
  wake_ = wake;
  wake_argument_ = wake_argument;
}

void Engine::close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  is_closed_ = true;
  const uint64_t now = now_ns();
  for (const auto& connection : std::set(connections_)) {
    connection->write(now);
    connection->close(now);
  }
  for (auto& [socket, endpoint] : endpoints_) epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  for (auto& [socket, endpoint] : endpoints_) endpoint->is_listening = false;
  endpoints_.clear();
  client_endpoints_.clear();
  incoming_.clear();
  ready_.clear();
}

std::shared_ptr<Endpoint> Engine::add_endpoint(const std::vector<SocketAddress>& addresses,
                                               const std::string& text) {
  auto endpoint = std::make_shared<Endpoint>(addresses, text);
  endpoints_[endpoint->socket()] = endpoint;
  epoll_event event{};
  event.events = endpoint->watched = EPOLLIN;
  event.data.u64 = tag_ | static_cast<uint64_t>(endpoint->socket());
  epoll_ctl(epoll_, EPOLL_CTL_ADD, endpoint->socket(), &event);
  return endpoint;
}

Endpoint* Engine::find(int socket) const {
  const auto found = endpoints_.find(socket);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

int Engine::listen(const std::vector<SocketAddress>& addresses, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto endpoint = add_endpoint(addresses, text);
  endpoint->is_listening = true;
  return endpoint->socket();
}

void Engine::stop_listening(int endpoint_id) {
  const std::lock_guard lock(mutex_);
  Endpoint* endpoint = find(endpoint_id);
  if (!endpoint) return;
  endpoint->is_listening = false;
  close_idle(now_ns());
}

SocketAddress Engine::address_of(int endpoint_id) const {
  const std::lock_guard lock(mutex_);
  const Endpoint* endpoint = find(endpoint_id);
  return endpoint ? endpoint->address() : SocketAddress{};
}

std::unique_ptr<net::ByteStream> Engine::dial(const SocketAddress& to, int from_endpoint_id,
                                              const std::string& host) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return nullptr;
  try {
    const int family = to.storage.ss_family;
    std::shared_ptr<Endpoint> from;
    if (const auto found = endpoints_.find(from_endpoint_id);
        found != endpoints_.end() && found->second->address().storage.ss_family == family) {
      from = found->second;
    } else {
      auto& client = client_endpoints_[family];
      if (!client) {
        SocketAddress any;
        any.storage.ss_family = static_cast<sa_family_t>(family);
        any.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        client = add_endpoint({any}, "any address");
      }
      from = client;
    }
    const auto certificates = credentials_.current();
    const auto found =
        std::find_if(connections_.begin(), connections_.end(), [&](const std::shared_ptr<Connection>& known) {
          return known->role() == Connection::Role::client && known->is_alive() &&
                 known->endpoint() == from && same_address(known->peer(), to) && known->host() == host &&
                 known->certificates() == certificates;
        });
    std::shared_ptr<Connection> connection;
    if (found != connections_.end()) {
      connection = *found;
    } else {
      connection = std::make_shared<Connection>(*this, from, Endpoint::Route{from->address(), to}, host);
      connections_.insert(connection);
    }
    auto stream = connection->open_stream();
    touch(*connection);
    finish();
    return std::make_unique<QuicStream>(shared_from_this(), std::move(stream));
  } catch (const Error&) {
    return nullptr;
  }
}

std::optional<Engine::IncomingStream> Engine::next_incoming() {
  const std::lock_guard lock(mutex_);
  if (!incoming_.empty()) {
    auto stream = std::move(incoming_.front());
    incoming_.pop_front();
    const int endpoint_id = stream->connection->endpoint()->socket();
    return IncomingStream{endpoint_id, std::make_unique<QuicStream>(shared_from_this(), std::move(stream))};
  }
  has_incoming_.store(false, std::memory_order_relaxed);
  return std::nullopt;
}

size_t Engine::ready_count() const {
  const std::lock_guard lock(mutex_);
  return ready_.size();
}

std::optional<uint64_t> Engine::take_ready() {
  const std::lock_guard lock(mutex_);
  while (!ready_.empty()) {
    auto stream = std::move(ready_.front());
    ready_.pop_front();
    stream->is_queued = false;
    if ((stream->readiness() & stream->wanted) == 0) continue;
    const uint64_t key = stream->key;
    in_service_ = std::move(stream);
    return key;
  }
  return std::nullopt;
}

void Engine::ready_handled(uint64_t) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<StreamState> last = std::move(in_service_);  // destroyed before the lock is released
  // As epoll does: reported again while it is ready, except with EPOLLET.
  if (last && !(last->wanted & EPOLLET)) notify(*last);
}

void Engine::watch(StreamState& stream, uint64_t key, uint32_t events) {
  stream.key = key;
  const bool was_polled = stream.wanted == 0;
  stream.wanted = events;
  if (events != 0) notify(stream);
  if (was_polled != (events == 0) && stream.connection) watch_socket(*stream.connection->endpoint());
}

// A polling thread reads the socket itself, and another reader would disturb it. As soon as one stream has no
// polling thread, the progress thread reads.
void Engine::watch_socket(Endpoint& endpoint) {
  uint32_t wanted = endpoint.is_blocked() ? uint32_t{EPOLLOUT} : 0u;
  bool is_polled = !endpoint.is_listening;
  if (is_polled) {
    for (const auto& connection : connections_) {
      if (connection->endpoint().get() == &endpoint && !connection->is_polled()) is_polled = false;
    }
  }
  if (!is_polled) wanted |= EPOLLIN;
  if (wanted == endpoint.watched || is_closed_) return;
  epoll_event event{};
  event.events = endpoint.watched = wanted;
  event.data.u64 = tag_ | static_cast<uint64_t>(endpoint.socket());
  epoll_ctl(epoll_, EPOLL_CTL_MOD, endpoint.socket(), &event);
}

uint64_t Engine::stream_window(const Endpoint& endpoint) const {
  if (options_.window_bytes) return options_.window_bytes;
  return endpoint.receive_buffer_bytes() >= kLargeBuffer ? kLongWindow : kShortWindow;
}

void Engine::established(Connection& connection) {
  ++counters_.handshakes;
  if (std::exchange(connection.is_counted_half_open, false)) --half_open_;
}

void Engine::add_incoming(std::shared_ptr<StreamState> stream) {
  incoming_.push_back(std::move(stream));
  has_incoming_.store(true, std::memory_order_relaxed);
  if (!is_progress_thread()) wake_(wake_argument_);
}

void Engine::notify(StreamState& stream) {
  if (stream.is_queued || !stream.is_held || (stream.readiness() & stream.wanted) == 0) return;
  stream.is_queued = true;
  ready_.push_back(stream.shared_from_this());
  if (!is_progress_thread()) wake_(wake_argument_);
}

void Engine::touch(Connection& connection) {
  if (connection.is_touched) return;
  connection.is_touched = true;
  touched_.push_back(connection.shared_from_this());
}

void Engine::finish() {
  if (touched_.empty()) return;
  const uint64_t now = now_ns();
  for (size_t i = 0; i < touched_.size(); ++i) {
    const std::shared_ptr<Connection> connection = touched_[i];
    connection->is_touched = false;
    connection->write(now);
    set_timer(*connection);
    if (connection->endpoint()->is_blocked()) watch_socket(*connection->endpoint());
  }
  touched_.clear();
}

void Engine::set_timer(Connection& connection) {
  const uint64_t expiry = connection.expiry();
  // A timer that fires too early is set again then: cheaper than moving it with every packet.
  if (expiry >= connection.timer_ns) return;
  if (connection.timer_ns != UINT64_MAX) timers_.erase({connection.timer_ns, &connection});
  connection.timer_ns = expiry;
  timers_.insert({expiry, &connection});
  if (expiry >= deadline_ns_.load(std::memory_order_relaxed)) return;
  deadline_ns_.store(expiry, std::memory_order_relaxed);
  if (!is_progress_thread()) wake_(wake_argument_);
}

uint64_t Engine::deadline_ns() const { return deadline_ns_.load(std::memory_order_relaxed); }

void Engine::forget(Connection& connection) {
  if (connection.timer_ns != UINT64_MAX) timers_.erase({connection.timer_ns, &connection});
  connection.timer_ns = UINT64_MAX;
  if (std::exchange(connection.is_counted_half_open, false)) --half_open_;
  std::shared_ptr<ClosedConnection> closed;
  if (!closed_.empty() && closed_.back()->ids.empty()) closed = closed_.back();
  for (const std::string& id : connection.ids) {
    ids_.erase(id);
    if (closed) closed_by_id_[id] = closed;
  }
  if (closed) closed->ids = std::move(connection.ids);
  connection.ids.clear();
  connections_.erase(connection.shared_from_this());
}

void Engine::keep_close_packet(Connection&, std::span<const std::byte> packet, uint64_t until) {
  auto closed = std::make_shared<ClosedConnection>();
  closed->packet.assign(packet.begin(), packet.end());
  closed->until = until;
  closed_.push_back(std::move(closed));  // forget() is called next and adds the ids
}

void Engine::add_id(Connection& connection, const ngtcp2_cid& id) {
  std::string text(reinterpret_cast<const char*>(id.data), id.datalen);
  ids_[text] = &connection;
  connection.ids.push_back(std::move(text));
}

void Engine::remove_id(const ngtcp2_cid& id) {
  const std::string text(reinterpret_cast<const char*>(id.data), id.datalen);
  const auto found = ids_.find(text);
  if (found == ids_.end()) return;
  std::erase(found->second->ids, text);
  ids_.erase(found);
}

Counts Engine::counts() const {
  const std::lock_guard lock(mutex_);
  uint64_t datagrams_in = 0, datagrams_out = 0, bytes_in = 0, bytes_out = 0, dropped = 0;
  for (const auto& [socket, endpoint] : endpoints_) {
    datagrams_in += endpoint->datagrams_in;
    datagrams_out += endpoint->datagrams_out;
    bytes_in += endpoint->bytes_in;
    bytes_out += endpoint->bytes_out;
    dropped += endpoint->dropped_out;
  }
  return {{"connections", connections_.size()},
          {"handshakes", counters_.handshakes},
          {"half_open", half_open_},
          {"migrations", counters_.migrations},
          {"garbage", counters_.garbage},
          {"early_data", counters_.early_data},
          {"version_negotiations", counters_.version_negotiations},
          {"retries", counters_.retries},
          {"rejected_handshakes", counters_.rejected_handshakes},
          {"refused_certificates", counters_.refused_certificates},
          {"violations", counters_.violations},
          {"reloads", credentials_.reloads()},
          {"failed_reloads", credentials_.failed_reloads()},
          {"datagrams_in", datagrams_in},
          {"datagrams_out", datagrams_out},
          {"bytes_in", bytes_in},
          {"bytes_out", bytes_out},
          {"dropped_out", dropped}};
}

}  // namespace verbena::quic
