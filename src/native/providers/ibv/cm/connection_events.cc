// The steps of a connection, driven by the manager's events, from address resolution to the end.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "providers/ibv/cm/connection.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::ibv {
namespace {

// Reasons of InfiniBand's REJ message, which the status of a rejection contains.
constexpr int kRejectedByTimeout = 4, kNoListener = 8;
// For Ethernet the manager assumes a packet lifetime of seconds. With the default of unmanaged connections
// instead, a dead peer is noticed within half a second.
constexpr uint8_t kAckTimeout = QpAttributes{}.timeout;
// The kernel may miss an ARP reply that arrives at once, and checks again only after its timeout. So the
// timeout is short, and the request is repeated until the deadline.
constexpr int kResolveMs = 200;
constexpr uint8_t kRnrTimer = QpAttributes{}.min_rnr_timer;  // the manager's own is 655 ms

void check(int result, ErrorCode code, const char* detail) {
  if (result != 0) throw Error(code, "connect", detail, errno);
}

}  // namespace

void IbvConnection::on_event(const CmEvent& event) {
  ErrorCode failure;
  {
    const std::lock_guard lock(mutex_);
    if (!id_) return;
    try {
      switch (event.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
          is_resolved_ = true;
          resolve_route();
          return;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
          request();
          return;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
          finish(event);
          return;
        case RDMA_CM_EVENT_ESTABLISHED:
          if (state_ != ConnectionState::connecting) return;
          if (context_->is_iwarp()) qp_->note_connected();
          private_data_ = sent_data(event.private_data, *context_);
          change(ConnectionState::established);
          return;
        case RDMA_CM_EVENT_REJECTED:
          on_reject(event);
          return;
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
          on_end();
          return;
        case RDMA_CM_EVENT_ADDR_ERROR:
          if (event.status == -ETIMEDOUT && now_ns() < deadline_ns_) {
            resolve_address();
            return;
          }
          failure = event.status == -ETIMEDOUT ? ErrorCode("connect_timeout") : "unreachable";
          break;
        case RDMA_CM_EVENT_ROUTE_ERROR:
          failure = "unreachable";
          break;
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
          failure = event.status == -ETIMEDOUT ? ErrorCode("connect_timeout")
                    : is_beyond_init_          ? ErrorCode("peer_died")
                                               : "unreachable";
          break;
        default:
          return;
      }
    } catch (const Error& error) {
      failure = error.code();
    }
  }
  fail(failure);
}

void IbvConnection::resolve_address() {
  // From this device's own address, so that the kernel chooses this device.
  SocketAddress from = own_address(*context_, 0);
  const bool known = from.family() == to_.family() && !is_any(from);
  check(library().rdma_resolve_addr(id_, known ? from.get() : nullptr, to_.get(),
                                    std::min(milliseconds_left(), kResolveMs)),
        "unreachable", "no device reaches it");
}

void IbvConnection::resolve_route() {
  if (name_of(id_->verbs) != context_->name())
    throw Error("unreachable", "connect", "the route to the peer uses another device");
  check(library().rdma_resolve_route(id_, milliseconds_left()), "unreachable", "no route");
}

rdma_conn_param IbvConnection::parameters() const {
  const auto most = static_cast<uint8_t>(std::min(context_->limits().max_rd_atomic, 254u));
  return {.private_data = params_.private_data.empty() ? nullptr : params_.private_data.data(),
          .private_data_len = static_cast<uint8_t>(params_.private_data.size()),
          .responder_resources = std::min(params_.responder_resources, most),
          .initiator_depth = std::min(params_.initiator_depth, most),
          .flow_control = 1,
          .retry_count = params_.retry_count,
          .rnr_retry_count = params_.rnr_retry,
          .srq = qp_->has_srq() ? uint8_t{1} : uint8_t{0},
          .qp_num = qp_->number()};
}

void IbvConnection::initialise_qp() {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_INIT;
  check(library().rdma_init_qp_attr(id_, &attr, &mask), "peer_died", "the other side is gone");
  if (qp_->state() == QpState::init) {
    mask &= ~IBV_QP_ACCESS_FLAGS;  // the program has chosen them
  } else {
    attr.qp_access_flags = access::remote_write | access::remote_read;
    if (context_->has_atomics()) attr.qp_access_flags |= access::remote_atomic;
  }
  qp_->apply(attr, mask, "connect");
}

void IbvConnection::move_qp_to_rts(uint8_t responder_resources, uint8_t initiator_depth) {
  is_beyond_init_ = true;
  if (context_->is_iwarp()) return;  // the kernel does it when the TCP connection is up
  const bool ethernet = context_->limits().transport == "RoCE";
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  check(library().rdma_init_qp_attr(id_, &attr, &mask), "peer_died", "the other side is gone");
  attr.max_dest_rd_atomic = std::min(attr.max_dest_rd_atomic, responder_resources);
  attr.min_rnr_timer = kRnrTimer;
  qp_->apply(attr, mask, "connect");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  check(library().rdma_init_qp_attr(id_, &attr, &mask), "peer_died", "the other side is gone");
  attr.max_rd_atomic = std::min(attr.max_rd_atomic, initiator_depth);
  attr.retry_cnt = params_.retry_count;
  attr.rnr_retry = params_.rnr_retry;
  if (ethernet) attr.timeout = std::min(attr.timeout, kAckTimeout);
  qp_->apply(attr, mask, "connect");
}

void IbvConnection::request() {
  initialise_qp();
  rdma_conn_param param = parameters();
  check(library().rdma_connect(id_, &param), "unreachable", "the request cannot be sent");
}

void IbvConnection::finish(const CmEvent& response) {
  const rdma_conn_param asked = parameters();
  move_qp_to_rts(asked.responder_resources, asked.initiator_depth);
  check(library().rdma_establish(id_), "peer_died", "the other side is gone");
  private_data_ = sent_data(response.private_data, *context_);
  change(ConnectionState::established);
}

void IbvConnection::accept(rdma_cm_id* id, uint8_t responder_resources, uint8_t initiator_depth) {
  qp_->set_connection(shared_from_this());
  const std::lock_guard lock(mutex_);
  id_ = id;
  context_->loop().adopt_id(id_, shared_from_this());
  rdma_conn_param param = parameters();
  param.responder_resources = std::min(param.responder_resources, responder_resources);
  param.initiator_depth = std::min(param.initiator_depth, initiator_depth);
  initialise_qp();
  move_qp_to_rts(param.responder_resources, param.initiator_depth);
  check(library().rdma_accept(id_, &param), "peer_died", "the initiator has given up");
}

void IbvConnection::on_reject(const CmEvent& event) {
  if (state_ != ConnectionState::connecting) return;
  if (is_beyond_init_) qp_->move_to_err();
  private_data_ = sent_data(event.private_data, *context_);
  if (event.status == kNoListener) {
    change(ConnectionState::failed, "unreachable");
  } else if (event.status == kRejectedByTimeout) {
    change(ConnectionState::failed, "connect_timeout");
  } else {
    change(ConnectionState::rejected, "rejected");
  }
}

void IbvConnection::on_end() {
  if (is_over()) return;
  if (is_beyond_init_) qp_->move_to_err();
  library().rdma_disconnect(id_);  // replies to the peer's message
  const bool was_up = state_ == ConnectionState::established;
  change(was_up ? ConnectionState::disconnected : ConnectionState::failed,
         was_up ? ErrorCode() : "peer_died");
}

void IbvConnection::on_first_message() {
  const std::lock_guard lock(mutex_);
  if (id_ && state_ == ConnectionState::connecting) library().rdma_notify(id_, IBV_EVENT_COMM_EST);
}

}  // namespace verbena::ibv
