#include "providers/soft/connection.h"

#include "util/clock.h"
#include "util/error.h"

namespace verbena::soft {

void check_private_data(std::span<const uint8_t> data, size_t limit, const char* operation) {
  if (data.size() > limit) {
    throw Error("limit_exceeded", operation,
                "private data is limited to " + std::to_string(limit) + " bytes");
  }
}

void prepare_for_connection(SoftQueuePair& qp) {
  if (qp.state() == QpState::reset) {
    move_to_init(qp);
  }
  if (qp.state() != QpState::init) {
    throw Error("bad_transition", "connect", "the queue pair must be in RESET or INIT");
  }
}

SoftConnection::SoftConnection(std::shared_ptr<SoftQueuePair> qp, std::string peer,
                               const ConnectParams& params)
    : params_(params),
      qp_(std::move(qp)),
      peer_(std::move(peer)),
      deadline_ns_(now_ns() + uint64_t{params.timeout_ms} * 1'000'000) {}

ConnectionState SoftConnection::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

ErrorCode SoftConnection::error_code() const {
  const std::lock_guard lock(mutex_);
  return code_;
}

std::string SoftConnection::error_detail() const {
  const std::lock_guard lock(mutex_);
  return detail_;
}

std::vector<uint8_t> SoftConnection::private_data() const {
  const std::lock_guard lock(mutex_);
  return private_data_;
}

bool SoftConnection::change(ConnectionState state, ErrorCode code, std::span<const uint8_t> private_data,
                            std::string detail) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ConnectionState::connecting && state_ != ConnectionState::established) return false;
    if (state_ == state) return false;
    state_ = state;
    code_ = code;
    detail_ = std::move(detail);
    if (!private_data.empty()) private_data_.assign(private_data.begin(), private_data.end());
  }
  changed_.signal();
  return true;
}

void SoftConnection::move_qp_to_rts(const Gid& peer_gid, uint32_t peer_qp) {
  move_to_rts(*qp_, {.dest_gid = peer_gid,
                     .path_mtu = 4096,
                     .dest_qp_num = peer_qp,
                     .max_rd_atomic = params_.initiator_depth,
                     .max_dest_rd_atomic = params_.responder_resources,
                     .min_rnr_timer = 12,
                     .retry_count = params_.retry_count,
                     .rnr_retry = params_.rnr_retry});
}

void SoftConnection::move_qp_to_err() {
  if (const QpState state = qp_->state(); state != QpState::reset && state != QpState::err) {
    try {
      qp_->modify({.state = QpState::err});
    } catch (const Error&) {
      // close() has begun, which ends the queue pair as well.
    }
  }
}

}  // namespace verbena::soft
