#include "providers/shm/context.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstring>

#include "util/clock.h"
#include "util/error.h"
#include "util/random.h"

namespace verbena::shm {
namespace {

constexpr uint64_t kPeerAccessLimitNs = 2'000'000'000;
constexpr size_t kMaxAllocation = size_t{1} << 46;
constexpr auto kAttachTimeout = std::chrono::seconds(2);

// Has the form of a unique local IPv6 address: the prefix is our name, the rest is random.
Gid make_gid() {
  Gid gid{0xfd, 'v', 'e', 'r', 'b', 'e', 'n', 'a'};
  const auto random = random_value<uint64_t>();
  std::memcpy(gid.data() + 8, &random, sizeof random);
  return gid;
}

}  // namespace

SharedTable::SharedTable()
    : fd(make_memfd("verbena-regions", soft::kRegionTableBytes, false)),
      mapping(fd.get(), soft::kRegionTableBytes, true) {
  seal(fd.get(), false);
}

ShmContext::ShmContext(SharedTable table)
    : SoftContext(reinterpret_cast<soft::RegionEntry*>(table.mapping.data())),
      gid_(make_gid()),
      probe_token_(random_value<uint64_t>()),
      table_(std::move(table)),
      spare_fd_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      node_socket_(listen_at(node_address(gid_), SOMAXCONN)),
      pool_(std::make_shared<ArenaPool>([this](uint32_t id) {
        const std::lock_guard lock(control_mutex_);
        for (auto& [socket, link] : links_) link->withdraw_arena(id);
      })),
      sharing_(*pool_) {}

std::shared_ptr<ShmContext> ShmContext::open() {
  auto context = std::make_shared<ShmContext>(SharedTable());
  context->watch(context->progress_.doorbell());
  context->watch(context->node_socket_.get());
  context->progress_.start("verbena-shm",
                           [self = context.get()](const std::stop_token& stop) { self->run(stop); });
  return context;
}

void ShmContext::close() {
  std::call_once(closed_, [this] {
    pool_->stop_announcing();
    progress_.stop();
    std::map<int, std::shared_ptr<Link>> links;
    {
      const std::lock_guard lock(control_mutex_);
      links.swap(links_);
    }
    for (auto& [socket, link] : links) remove_link(link);
    node_socket_.reset();
  });
}

DeviceAttributes ShmContext::query() const {
  DeviceAttributes device = shm_device_attributes();
  device.ports[0].gids = {gid_};
  device.ports[0].gid_types = {"process"};
  return device;
}

DeviceAttributes shm_device_attributes() {
  DeviceAttributes device = soft::soft_device_attributes();
  device.name = "shm0";
  device.provider = "shm";
  device.transport = "shared memory of one host";
  PortAttributes port;
  port.state = PortState::active;
  port.active_mtu = 4096;
  port.link_layer = "memory";
  device.ports.push_back(port);
  device.capabilities = {{"atomics", "yes"},
                         {"acknowledged", "yes"},
                         {"memory_windows", "yes"},
                         {"arena_memory", "direct"},
                         {"plain_memory", "process_vm where the kernel allows it, else staged by the peer"},
                         {"managed_connections", "by name, within one user"}};
  return device;
}

std::shared_ptr<soft::SoftCompletionQueue> ShmContext::make_cq(uint32_t depth) {
  return std::make_shared<ShmCompletionQueue>(
      std::shared_ptr<soft::ProgressThread>(shared_from_this(), &progress_), depth);
}

std::shared_ptr<Memory> ShmContext::allocate(size_t bytes, const MemoryOptions& options) {
  if (bytes > kMaxAllocation) throw Error("limit_exceeded", "allocate memory", "the block is too long");
  return pool_->allocate(bytes, options, memory_node());
}

soft::ArenaLocation ShmContext::locate(const std::byte* addr, size_t length, uint32_t access,
                                       const MemoryGroup* group) const {
  return pool_->locate(addr, length, access, group);
}

void ShmContext::grant_access(uint32_t qp_num, uint32_t pd, const std::shared_ptr<Link>& link) {
  link->offer_access({reinterpret_cast<uint64_t>(&probe_token_), probe_token_}, table_.fd.get());
  sharing_.connected(qp_num, pd, link);
}

std::shared_ptr<soft::SoftQueuePair> ShmContext::make_qp(std::shared_ptr<soft::SoftDomain> domain,
                                                         const QpOptions& options, uint32_t number) {
  return std::make_shared<ShmQueuePair>(std::move(domain), options, number, *this);
}

void ShmContext::track_access(PeerAccess access) {
  const std::lock_guard lock(accesses_mutex_);
  accesses_.push_back(std::move(access));
}

void ShmContext::quiesce() {
  SoftContext::quiesce();
  std::vector<PeerAccess> accesses;
  for_each_qp([&](soft::SoftQueuePair& qp) {
    if (auto access = static_cast<ShmQueuePair&>(qp).current_access()) accesses.push_back(std::move(*access));
  });
  {
    const std::lock_guard lock(accesses_mutex_);
    std::erase_if(accesses_,
                  [](const PeerAccess& a) { return a.epoch->load() != a.seen || !a.link->alive(); });
    accesses.insert(accesses.end(), accesses_.begin(), accesses_.end());
  }
  const uint64_t began = now_ns();
  for (const PeerAccess& access : accesses) {
    while (access.epoch->load(std::memory_order_acquire) == access.seen && access.link->alive()) {
      if (now_ns() - began > kPeerAccessLimitNs) {
        access.link->fail();
        // A peer that was stopped in the middle of a copy may finish it much later: never reuse those bytes.
        pool_->abandon(access.link->offered_arenas());
      }
      sched_yield();
    }
  }
  wake();
}

void ShmContext::add_connection(ShmConnection& connection) {
  const std::lock_guard lock(control_mutex_);
  connections_[connection.connection_id()] = &connection;
}

void ShmContext::remove_connection(ShmConnection& connection) {
  const std::lock_guard lock(control_mutex_);
  connections_.erase(connection.connection_id());
}

void ShmContext::add_listener(ShmListener& listener) {
  const std::lock_guard lock(control_mutex_);
  watch(listener.socket());  // first: it may throw
  listeners_[listener.socket()] = &listener;
}

void ShmContext::remove_listener(ShmListener& listener) {
  const std::lock_guard lock(control_mutex_);
  listeners_.erase(listener.socket());
  epoll_ctl(progress_.epoll(), EPOLL_CTL_DEL, listener.socket(), nullptr);
}

void ShmContext::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(progress_.epoll(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error("fd_limit", "open device", "epoll_ctl() failed", errno);
  }
}

std::shared_ptr<Listener> ShmContext::listen(const std::string& address, int backlog) {
  std::string service = address;
  if (service.empty()) service = "auto-" + std::to_string(random_value<uint64_t>());
  if (service.size() > kMaxServiceName) {
    throw Error("invalid_argument", "listen",
                "a name has at most " + std::to_string(kMaxServiceName) + " bytes");
  }
  return std::make_shared<ShmListener>(std::static_pointer_cast<ShmContext>(shared_from_this()), service,
                                       backlog);
}

std::shared_ptr<Connection> ShmContext::connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                                const ConnectParams& params) {
  if (address.empty() || address.size() > kMaxServiceName) {
    throw Error("invalid_argument", "connect",
                "the name must have 1 to " + std::to_string(kMaxServiceName) + " bytes");
  }
  auto managed = managed_qp(qp, params);
  const UniqueFd ring = managed->share_ring();
  auto connection =
      std::make_shared<ShmConnection>(std::static_pointer_cast<ShmContext>(shared_from_this()), managed,
                                      address, random_value<uint64_t>() & ~uint64_t{1}, params);
  const auto try_once = [&] {
    const auto link = link_to(service_address(address));
    if (!link) return false;
    // Under the lock: a link that is removed at the same time must not count as the end of this connection.
    const std::lock_guard lock(control_mutex_);
    connection->set_link(link);
    const bool sent = link->send({.kind = MessageKind::connect,
                                  .from_qp = managed->number(),
                                  .connection_id = connection->connection_id(),
                                  .service = address,
                                  .private_data = params.private_data,
                                  .fds = {ring.get(), -1}});
    if (!sent) connection->set_link(nullptr);
    return sent;
  };
  add_connection(*connection);
  // A link that has just failed may not have been noticed yet: try a second time.
  if (!try_once() && !try_once()) connection->fail_connect("unreachable");
  wake();
  return connection;
}

void ShmContext::disconnect_qp(uint32_t number) {
  const std::lock_guard lock(control_mutex_);
  for (auto& [connection_id, connection] : connections_) {
    if (connection->qp_number() == number) connection->disconnect();
  }
}

std::shared_ptr<Link> ShmContext::add_link(UniqueFd socket, const std::string& dialled) {
  const auto pid = trusted_peer(socket.get());
  if (!pid) {
    send_message(socket.get(), {.kind = MessageKind::refuse, .service = ErrorCode("credentials").text()});
    return nullptr;
  }
  auto link = std::make_shared<Link>(std::move(socket), *pid, dialled);
  const std::lock_guard lock(control_mutex_);
  link->offer_hello(gid_);
  if (!link->alive()) return nullptr;
  watch(link->socket());
  links_[link->socket()] = link;
  return link;
}

std::shared_ptr<Link> ShmContext::link_to(const std::string& address) {
  {
    const std::lock_guard lock(control_mutex_);
    const auto found = links_by_address_.find(address);
    if (found != links_by_address_.end()) {
      if (auto link = found->second.lock(); link && link->alive()) return link;
      links_by_address_.erase(found);
    }
  }
  UniqueFd socket = dial(address);
  if (!socket) return nullptr;
  if (!trusted_peer(socket.get())) throw Error("credentials", "connect", "the peer runs as another user");
  auto link = add_link(std::move(socket), address);
  if (link) {
    const std::lock_guard lock(control_mutex_);
    links_by_address_[address] = link;
  }
  return link;
}

bool ShmContext::attach(ShmQueuePair& qp, int ring_fd, const Gid& gid, uint32_t peer_qp) {
  const auto link = link_to(node_address(gid));
  if (!link) return false;
  {
    const std::lock_guard lock(control_mutex_);
    attaching_[qp.number()] = {link.get(), false};
  }
  link->send({.kind = MessageKind::attach, .from_qp = qp.number(), .to_qp = peer_qp, .fds = {ring_fd, -1}});
  std::unique_lock lock(control_mutex_);
  control_changed_.wait_for(lock, kAttachTimeout, [&] {
    return qp.is_bound_to(gid, peer_qp) || attaching_[qp.number()].refused || !link->alive();
  });
  attaching_.erase(qp.number());
  return qp.is_bound_to(gid, peer_qp);
}

}  // namespace verbena::shm
