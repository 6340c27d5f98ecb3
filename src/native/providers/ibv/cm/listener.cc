#include "providers/ibv/cm/listener.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "providers/ibv/cm/connection.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

class IbvConnectRequest final : public ConnectRequest {
 public:
  explicit IbvConnectRequest(std::shared_ptr<PendingRequest> pending) : pending_(std::move(pending)) {}

  std::string peer() const override { return pending_->peer(); }
  std::vector<uint8_t> private_data() const override { return pending_->private_data(); }

  std::shared_ptr<Connection> accept(std::shared_ptr<QueuePair> qp, const ConnectParams& params) override {
    auto managed =
        managed_qp(qp, *pending_->context(), params.private_data.size(), PrivateData::accept, "accept");
    if (pending_->is_gone()) throw Error("peer_died", "accept", "the peer has given up");
    auto connection = std::make_shared<IbvConnection>(pending_->context(), managed, pending_->peer(), params);
    rdma_cm_id* id = pending_->take_id();
    if (!id) throw Error("bad_transition", "accept", "the request was answered before");
    pending_->context()->track(RemovalRank::connection, connection);
    connection->accept(id, pending_->responder_resources(), pending_->initiator_depth());
    return connection;
  }

  void reject(std::span<const uint8_t> private_data) override {
    check_private_data(private_data.size(), PrivateData::reject, *pending_->context(), "reject");
    pending_->reject(private_data);
  }

 private:
  const std::shared_ptr<PendingRequest> pending_;
};

[[noreturn]] void refuse(const std::string& address, int failure) {
  if (failure == EADDRINUSE) throw Error("address_in_use", "listen", "'" + address + "' is taken", failure);
  throw Error("unreachable", "listen", "'" + address + "' is not an address of an RDMA device", failure);
}

}  // namespace

PendingRequest::PendingRequest(std::shared_ptr<IbvContext> context, const CmEvent& request)
    : context_(std::move(context)),
      private_data_(sent_data(request.private_data, *context_)),
      responder_resources_(request.responder_resources),
      initiator_depth_(request.initiator_depth),
      peer_(text_of(rdma_get_peer_addr(request.new_id))),
      id_(request.new_id) {}

PendingRequest::~PendingRequest() {
  if (id_) reject({});
}

void PendingRequest::on_event(const CmEvent&) {
  const std::lock_guard lock(mutex_);
  gone_ = true;
}

void PendingRequest::on_removal() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  if (rdma_cm_id* id = take_id()) context_->loop().destroy_id(id);
}

bool PendingRequest::is_gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

rdma_cm_id* PendingRequest::take_id() {
  const std::lock_guard lock(mutex_);
  return std::exchange(id_, nullptr);
}

void PendingRequest::reject(std::span<const uint8_t> private_data) {
  rdma_cm_id* id = take_id();
  if (!id) throw Error("bad_transition", "reject", "the request was answered before");
  library().rdma_reject(id, private_data.empty() ? nullptr : private_data.data(),
                        static_cast<uint8_t>(private_data.size()));
  context_->loop().destroy_id(id);
}

IbvListener::IbvListener(std::shared_ptr<IbvContext> context, int backlog)
    : context_(std::move(context)), backlog_(static_cast<size_t>(std::max(backlog, 1))) {}

void IbvListener::start(const std::string& address) {
  const auto where = split_address(address);
  if (!where)
    throw Error("unreachable", "listen", "'" + address + "' is not host:port, [address]:port or :port");
  SocketAddress at = where->host.empty() ? own_address(*context_, where->port) : look_up(*where, "listen");
  const std::lock_guard lock(mutex_);
  id_ = context_->loop().create_id(shared_from_this(), "listen");
  if (library().rdma_bind_addr(id_, at.get()) != 0) refuse(address, errno);
  if (id_->verbs && name_of(id_->verbs) != context_->name()) {
    // Of two devices on one network interface the connection manager always takes the same one.
    const std::string owner = name_of(id_->verbs), wanted = context_->name();
    throw Error("unreachable", "listen",
                "'" + text_of(at.get()) + "' is an address of " + owner + ", not of " + wanted +
                    "; if both are on one network interface, remove one of them (rdma link delete " + owner +
                    ")");
  }
  if (library().rdma_listen(id_, static_cast<int>(backlog_)) != 0) refuse(address, errno);
  address_ = text_of(rdma_get_local_addr(id_));
}

void IbvListener::on_event(const CmEvent& event) {
  if (!event.new_id) return;
  // On every early return the request is dropped, and thereby rejected.
  auto pending = std::make_shared<PendingRequest>(context_, event);
  context_->loop().adopt_id(event.new_id, pending);
  context_->track(RemovalRank::connection, pending);
  if (name_of(event.new_id->verbs) != context_->name())
    return;  // a wildcard address receives requests of all devices
  {
    const std::lock_guard lock(mutex_);
    if (!id_ || waiting_.size() >= backlog_) return;
    waiting_.push_back(std::move(pending));
  }
  event_.signal();
}

std::shared_ptr<ConnectRequest> IbvListener::next() {
  std::deque<std::shared_ptr<PendingRequest>> gone;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (is_removed_) throw Error("no_device", "accept", "the device " + context_->name() + " was removed");
  std::shared_ptr<PendingRequest> pending;
  while (!pending && !waiting_.empty()) {
    if (waiting_.front()->is_gone()) {
      gone.push_back(std::move(waiting_.front()));
    } else {
      pending = std::move(waiting_.front());
    }
    waiting_.pop_front();
  }
  if (waiting_.empty()) event_.clear();
  return pending ? std::make_shared<IbvConnectRequest>(std::move(pending)) : nullptr;
}

void IbvListener::on_removal() {
  close();
  const std::lock_guard lock(mutex_);
  is_removed_ = true;
  event_.signal();  // next() throws
}

void IbvListener::close() {
  rdma_cm_id* id = nullptr;
  std::deque<std::shared_ptr<PendingRequest>> left;
  {
    const std::lock_guard lock(mutex_);
    id = std::exchange(id_, nullptr);
    left.swap(waiting_);
    event_.clear();
  }
  if (id) context_->loop().destroy_id(id);
}

}  // namespace verbena::ibv
