#include "providers/iwarp/context.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "providers/iwarp/gid.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::iwarp {
namespace {

constexpr uint64_t kCloseTimeoutNs = 1'000'000'000;
constexpr int kNodeBacklog = 1024;
constexpr char kWithVerbena[] = "with Verbena peers";

}  // namespace

IwarpContext::IwarpContext(DeviceAttributes about, const net::Interface& interface, const Options& options,
                           std::shared_ptr<soft::RegionEntry> regions,
                           std::shared_ptr<StreamTransport> transport)
    : SoftContext(regions.get()),
      interface_(interface),
      options_(options),
      about_(std::move(about)),
      tls_(options.tls && !transport ? net::make_tls_context(*options.tls) : nullptr),
      region_entries_(std::move(regions)),
      transport_(std::move(transport)) {
  const net::SocketAddress address = nearby();
  if (transport_) {
    transport_->start(
        progress_.epoll(), static_cast<uint64_t>(Tag::transport) << 56,
        [](void* self) { static_cast<IwarpContext*>(self)->wake(); }, this);
    node_endpoint_id_ = transport_->listen({address}, net::to_text(address));
    node_address_ = transport_->address_of(node_endpoint_id_);
  } else {
    node_socket_ = net::listen_at({address}, net::to_text(address), kNodeBacklog);
    node_endpoint_id_ = node_socket_.get();
    node_address_ = net::local_address(node_endpoint_id_);
  }
}

void IwarpContext::start() {
  watch(progress_.doorbell(), Tag::doorbell, 0, EPOLLIN, EPOLL_CTL_ADD);
  if (node_socket_)
    watch(node_endpoint_id_, Tag::listener, static_cast<uint64_t>(node_endpoint_id_), EPOLLIN, EPOLL_CTL_ADD);
  progress_.start("verbena-iwarp", [this](const std::stop_token& stop) { run(stop); });
}

void IwarpContext::close() {
  std::call_once(closed_, [this] {
    progress_.stop();
    std::vector<ClosingConnection> newly_closing;
    {
      const std::lock_guard lock(posted_mutex_);
      is_closed_ = true;
      newly_closing.swap(newly_closing_);
    }
    for (ClosingConnection& closing : newly_closing) closing.advance(now_ns());
    for (auto& [id, closing] : closing_) closing.advance(now_ns());
    closing_.clear();
    const std::lock_guard lock(control_mutex_);
    handshakes_.clear();
    node_socket_.reset();
    if (transport_) transport_->close();
  });
}

DeviceAttributes IwarpContext::query() const {
  DeviceAttributes device = about_;
  for (auto& [name, value] : device.capabilities) {
    if (!options_.acknowledged && value == kWithVerbena) value = "no";
  }
  device.ports[0].gids = {to_gid(node_address_)};
  device.ports[0].gid_types = {transport_ ? "QUIC" : "iWARP"};
  device.ports[0].lid = node_address_.port();  // an IPv6 GID has no room for the port
  return device;
}

DeviceAttributes iwarp_device_attributes(const net::Interface& interface) {
  DeviceAttributes device = soft::soft_device_attributes();
  device.name = interface.name;
  device.provider = "iwarp";
  device.transport = "iWARP over kernel TCP";
  PortAttributes port;
  port.state = PortState::active;
  port.active_mtu = 4096;
  port.link_layer = "Ethernet";
  device.ports.push_back(port);
  device.capabilities = {{"atomics", kWithVerbena},
                         {"immediate", kWithVerbena},
                         {"acknowledged", kWithVerbena},
                         {"memory_windows", "yes"},
                         {"checksum", "crc32c"},
                         {"encryption", "TLS 1.3, by options"},
                         {"managed_connections", "by host:port"}};
  return device;
}

std::shared_ptr<soft::SoftCompletionQueue> IwarpContext::make_cq(uint32_t depth) {
  return std::make_shared<IwarpCompletionQueue>(
      std::shared_ptr<soft::ProgressThread>(shared_from_this(), &progress_), depth);
}

std::shared_ptr<soft::SoftQueuePair> IwarpContext::make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                                           const QpOptions& options, uint32_t number) {
  return std::make_shared<IwarpQueuePair>(std::move(domain), options, number, *this);
}

std::shared_ptr<Memory> IwarpContext::allocate(size_t bytes, const MemoryOptions& options) {
  return soft::anonymous_memory(bytes, options.huge_pages, memory_node());
}

std::shared_ptr<Listener> IwarpContext::listen(const std::string& address, int backlog) {
  return std::make_shared<IwarpListener>(std::static_pointer_cast<IwarpContext>(shared_from_this()), address,
                                         backlog);
}

std::shared_ptr<SocketListener> IwarpContext::listen_to_sockets(int backlog) {
  if (transport_) return nullptr;
  return std::make_shared<IwarpListener>(std::static_pointer_cast<IwarpContext>(shared_from_this()), backlog);
}

void IwarpContext::close_own_port() {
  const std::lock_guard lock(control_mutex_);
  const int id = std::exchange(node_endpoint_id_, kNoPort);
  if (id == kNoPort) return;
  if (transport_) return transport_->stop_listening(id);
  epoll_ctl(progress_.epoll(), EPOLL_CTL_DEL, id, nullptr);
  paused_listeners_.erase(id);
  node_socket_.reset();
}

net::SocketAddress IwarpContext::nearby() const {
  net::SocketAddress address = interface_.address;
  address.set_port(0);
  return address;
}

PrivateTrailer IwarpContext::trailer(uint32_t from_qp, uint32_t to_qp, uint8_t flags) const {
  PrivateTrailer trailer{};
  const Gid gid = to_gid(node_address_);
  std::memcpy(trailer.gid, gid.data(), gid.size());
  trailer.from_qp = from_qp;
  trailer.to_qp = to_qp;
  trailer.port = node_address_.port();
  std::memcpy(trailer.magic, kTrailerMagic, sizeof trailer.magic);
  trailer.version = kTrailerVersion;
  trailer.flags = static_cast<uint8_t>(flags | trailer_flag::takes_runs |
                                       (options_.acknowledged ? 0 : trailer_flag::plain));
  return trailer;
}

void IwarpContext::watch(int fd, Tag tag, uint64_t id, uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(tag) << 56 | id;
  epoll_ctl(progress_.epoll(), operation, fd, &event);
}

void IwarpContext::watch(const net::StreamSocket& socket, Tag tag, uint64_t id, uint32_t events,
                         int operation) const {
  if (socket.has_socket()) return watch(socket.socket(), tag, id, events, operation);
  socket.stream()->watch(static_cast<uint64_t>(tag) << 56 | id, operation == EPOLL_CTL_DEL ? 0 : events);
}

void IwarpContext::watch_qp(const net::StreamSocket& socket, uint32_t number, uint32_t events,
                            bool is_watched) const {
  const int operation = events == 0 ? EPOLL_CTL_DEL : is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  watch(socket, Tag::queue_pair, number, events, operation);
}

void IwarpContext::unwatch(const net::StreamSocket& socket) const {
  watch(socket, Tag::queue_pair, 0, 0, EPOLL_CTL_DEL);
}

void IwarpContext::search_peer(uint32_t number) {
  {
    const std::lock_guard lock(posted_mutex_);
    searching_qps_.push_back(number);
  }
  wake();
}

void IwarpContext::report_lost(uint32_t number) {
  {
    const std::lock_guard lock(posted_mutex_);
    lost_.push_back(number);
  }
  wake();
}

void IwarpContext::close_gracefully(net::StreamSocket socket, std::vector<std::byte> output,
                                    bool is_watched) {
  if (is_watched) unwatch(socket);
  const uint64_t now = now_ns();
  ClosingConnection closing{std::move(socket), std::move(output), 0, now + kCloseTimeoutNs, false};
  if (closing.advance(now)) return;
  {
    const std::lock_guard lock(posted_mutex_);
    if (is_closed_) return;
    newly_closing_.push_back(std::move(closing));
  }
  wake();
}

void IwarpContext::reject(Handshake& handshake, std::span<const uint8_t> private_data,
                          uint8_t trailer_flags) {
  if (!may_close_gracefully()) return;
  SetUpFrame reply = reply_to(handshake.request(), options_.wants_crc(), 0, 0);
  reply.rejected = true;
  reply.private_data.assign(private_data.begin(), private_data.end());
  if (trailer_flags != 0) reply.trailer = trailer(0, 0, trailer_flags);
  const std::vector<uint8_t> frame = encode(reply);
  const auto bytes = std::as_bytes(std::span(frame));
  close_gracefully(handshake.take_socket(), {bytes.begin(), bytes.end()}, false);
}

void IwarpContext::disconnect_qp(uint32_t number) {
  const std::lock_guard lock(control_mutex_);
  for (auto& [id, connection] : connections_) {
    if (connection->qp_number() == number) connection->disconnect();
  }
}

void IwarpContext::add_connection(IwarpConnection& connection) {
  const std::lock_guard lock(control_mutex_);
  connections_[connection.id()] = &connection;
}

void IwarpContext::remove_connection(IwarpConnection& connection) {
  const std::lock_guard lock(control_mutex_);
  connections_.erase(connection.id());
}

void IwarpContext::add_listener(IwarpListener& listener) {
  const std::lock_guard lock(control_mutex_);
  const int endpoint_id = listener.endpoint_id();
  listeners_[endpoint_id] = &listener;
  if (!transport_ && endpoint_id > kNoPort)
    watch(endpoint_id, Tag::listener, static_cast<uint64_t>(endpoint_id), EPOLLIN, EPOLL_CTL_ADD);
}

void IwarpContext::remove_listener(IwarpListener& listener) {
  const std::lock_guard lock(control_mutex_);
  listeners_.erase(listener.endpoint_id());
  paused_listeners_.erase(listener.endpoint_id());
  if (transport_) {
    transport_->stop_listening(listener.endpoint_id());
  } else if (listener.endpoint_id() > kNoPort) {
    epoll_ctl(progress_.epoll(), EPOLL_CTL_DEL, listener.endpoint_id(), nullptr);
  }
}

int IwarpContext::id_without_port() {
  const std::lock_guard lock(control_mutex_);
  return --last_id_without_port_;
}

}  // namespace verbena::iwarp
