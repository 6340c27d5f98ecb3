#include "providers/fake/queue_pair.h"

#include <utility>

#include "providers/fake/connection.h"
#include "util/error.h"

namespace verbena::fake {

FakeQueuePair::FakeQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options,
                             const Address& address)
    : SoftQueuePair(std::move(domain), options, address.qp), me_(address) {
  fabric_.add(me_, *this);
}

Capabilities FakeQueuePair::capabilities() const {
  return {{"one_sided", "yes"}, {"atomics", "yes"}, {"immediate", "yes"}, {"checksum", "crc32c"}};
}

void FakeQueuePair::wire_state_changed(QpState state) {
  switch (state) {
    case QpState::reset:
      fabric_.drop_packets(me_);
      wait(Waiting::no, 0);
      break;
    case QpState::rtr:
      expected_sequence_ = attributes_.rq_psn & kSequenceMask;
      last_answer_.clear();
      is_first_rts_ = true;
      break;
    case QpState::rts:
      if (std::exchange(is_first_rts_, false)) send_sequence_ = attributes_.sq_psn & kSequenceMask;
      break;
    case QpState::err:
      wait(Waiting::no, 0);
      break;
    case QpState::init:
    case QpState::sqd:
    case QpState::sqe:
      break;
  }
}

void FakeQueuePair::connect_to(const Address& peer, const ConnectParams& params) {
  if (state() == QpState::reset) soft::move_to_init(*this);
  soft::move_to_rts(*this, {.dest_gid = peer.gid,
                            .dest_qp_num = peer.qp,
                            .max_rd_atomic = params.initiator_depth,
                            .max_dest_rd_atomic = params.responder_resources,
                            .retry_count = params.retry_count,
                            .rnr_retry = params.rnr_retry});
}

void FakeQueuePair::set_link(std::shared_ptr<Link> link) {
  const std::lock_guard lock(link_mutex_);
  link_ = std::move(link);
}

void FakeQueuePair::link_ended(const Link& link) {
  {
    const std::lock_guard lock(link_mutex_);
    if (link_.get() != &link) return;
  }
  try {
    modify({.state = QpState::err});
  } catch (const Error&) {
    // The queue pair was closed.
  }
}

void FakeQueuePair::disconnect_wire() {
  fabric_.remove(me_);
  std::shared_ptr<Link> link;
  {
    const std::lock_guard lock(link_mutex_);
    link = std::exchange(link_, nullptr);
  }
  if (link) link->disconnect();
}

}  // namespace verbena::fake
