#include "providers/shm/queue_pair.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "providers/shm/completion_queue.h"
#include "providers/shm/context.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::shm {
namespace {

// The progress thread shares its core with other threads: shorter retry limits would give false alarms.
constexpr uint64_t kMinRetryLimitNs = 2'000'000'000;

const ShmCompletionQueue& shm_cq(const std::shared_ptr<CompletionQueue>& cq) {
  const auto* queue = dynamic_cast<const ShmCompletionQueue*>(cq.get());
  if (!queue)
    throw Error("invalid_argument", "create queue pair", "the completion queue must belong to this device");
  return *queue;
}

}  // namespace

ShmQueuePair::ShmQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options,
                           uint32_t number, ShmContext& context)
    : SoftQueuePair(std::move(domain), options, number),
      shm_(context),
      send_cq_(shm_cq(options.send_cq)),
      recv_cq_(shm_cq(options.recv_cq)) {}

Capabilities ShmQueuePair::capabilities() const {
  const std::lock_guard lock(lock_);
  const char* plain = !link_ ? "not connected" : link_->can_use_process_vm() ? "process_vm" : "staged";
  return {{"arena_memory", "direct"}, {"plain_memory", plain}, {"acknowledged", "yes"}, {"atomics", "yes"}};
}

UniqueFd ShmQueuePair::share_ring() {
  const std::lock_guard lock(lock_);
  if (!in_) {
    in_fd_ = make_memfd("verbena-ring", sizeof(RingSegment), false);
    in_mapping_ = std::make_shared<Mapping>(in_fd_.get(), sizeof(RingSegment), true);
    auto* segment = reinterpret_cast<RingSegment*>(in_mapping_->data());
    segment->header.magic = kRingMagic;
    segment->header.doorbell_armed.store(1, std::memory_order_relaxed);
    in_.emplace(segment);
  }
  // The connection manager sends it once; a peer that attaches directly may repeat its request.
  return managed_ ? std::move(in_fd_) : UniqueFd(fcntl(in_fd_.get(), F_DUPFD_CLOEXEC, 0));
}

bool ShmQueuePair::bind_peer(const std::shared_ptr<Link>& link, int ring_fd, uint32_t peer_qp) {
  if (sealed_size(ring_fd) != sizeof(RingSegment)) return false;
  struct stat info;
  if (fstat(ring_fd, &info) != 0) return false;
  Mapping mapping(ring_fd, sizeof(RingSegment), true);
  {
    const std::lock_guard lock(lock_);
    if (is_closed()) return false;
    // The same QP with another ring: the peer was reset, and this QP must be reset before it can connect
    // again.
    if (out_) return link_->gid() == link->gid() && peer_qp_ == peer_qp && peer_ring_ == info.st_ino;
    auto* segment = reinterpret_cast<RingSegment*>(mapping.data());
    if (segment->header.magic != kRingMagic) return false;
    out_mapping_ = std::move(mapping);
    out_.emplace(segment);
    link_ = link;
    peer_qp_ = peer_qp;
    peer_ring_ = info.st_ino;
    unreachable_ = false;
    grant_access();
  }
  shm_.wake();
  return true;
}

bool ShmQueuePair::is_bound_to(const Gid& gid, uint32_t peer_qp) const {
  const std::lock_guard lock(lock_);
  return out_ && link_ && link_->gid() == gid && peer_qp_ == peer_qp;
}

bool ShmQueuePair::is_managed() const {
  const std::lock_guard lock(lock_);
  return managed_;
}

void ShmQueuePair::connect_wire(const QpAttributes& attributes) {
  if (is_bound_to(attributes.dest_gid, attributes.dest_qp_num)) return;
  {
    const std::lock_guard lock(lock_);
    if (managed_)
      throw Error("bad_transition", "modify queue pair", "the connection manager is moving this queue pair");
    if (out_) drop_rings();  // another peer attached first, not the one that the program wants
  }
  const UniqueFd ring = share_ring();
  const bool reached = shm_.attach(*this, ring.get(), attributes.dest_gid, attributes.dest_qp_num);
  // As in verbs, RTR does not need the peer: a request without a peer fails with RETRY_EXC_ERR.
  const std::lock_guard lock(lock_);
  unreachable_ = !reached;
}

void ShmQueuePair::manage() {
  modify({.state = QpState::init});  // waits for a concurrent modify()
  const std::lock_guard lock(lock_);
  if (state() != QpState::init)
    throw Error("bad_transition", "connect", "the queue pair is not in INIT any longer");
  managed_ = true;
}

void ShmQueuePair::wire_state_changed(QpState state) {
  if (!in_) {
    if (state == QpState::reset) drop_rings();
    return;
  }
  RingHeader& header = in_->header();
  header.protection_domain.store(pd(), std::memory_order_relaxed);
  header.access_flags.store(attributes_.access_flags, std::memory_order_relaxed);
  const bool gone = state == QpState::err || state == QpState::reset;
  const Responder responder = gone                       ? Responder::gone
                              : soft::can_respond(state) ? Responder::ready
                                                         : Responder::not_ready;
  header.responder.store(static_cast<uint32_t>(responder), std::memory_order_seq_cst);
  gone ? shm_.revoke_access(number_) : grant_access();
  stalled_.store(false, std::memory_order_relaxed);
  header.stalled.store(0, std::memory_order_relaxed);
  wake_pending_ = true;
  check_doorbell();
  if (state == QpState::err && receiving_) {
    receiving_ = false;
    complete_receive(receive_, Status::wr_flush_err, 0, nullptr, false);
  }
  if (state == QpState::reset) drop_rings();
}

// Another process of the user may attach to any queue pair. It is given nothing before the program has moved
// the queue pair to RTR, with that peer.
void ShmQueuePair::grant_access() {
  if (!out_ || !link_ || !soft::can_respond(state())) return;
  if (attributes_.dest_gid != link_->gid() || attributes_.dest_qp_num != peer_qp_) return;
  shm_.grant_access(number_, pd(), link_);
}

void ShmQueuePair::drop_rings() {
  end_access();
  shm_.revoke_access(number_);
  if (auto access = current_access_locked()) shm_.track_access(std::move(*access));
  in_.reset();
  out_.reset();
  in_mapping_.reset();
  out_mapping_ = {};
  in_fd_.reset();
  unreachable_ = receiving_ = refused_ = managed_ = false;
  halted_at_ = kNever;
  finished_slots_ = 0;
  blocked_.store(false, std::memory_order_relaxed);
}

void ShmQueuePair::disconnect_wire() {
  shm_.disconnect_qp(number_);
  const std::lock_guard lock(lock_);
  link_.reset();
}

void ShmQueuePair::after_unlock() {
  if (!doorbell_pending_.load(std::memory_order_relaxed)) return;
  std::shared_ptr<Link> link;
  {
    const std::lock_guard lock(lock_);
    if (!doorbell_pending_.exchange(false, std::memory_order_relaxed)) return;
    link = link_;
  }
  if (link) link->ring_doorbell();
}

void ShmQueuePair::receive_posted() {
  if (is_stalled()) drive();
}

bool ShmQueuePair::is_polled() const { return send_cq_.is_polled() || recv_cq_.is_polled(); }

bool ShmQueuePair::is_waiting() const {
  const std::lock_guard lock(lock_);
  return out_ && out_->outstanding() > 0;
}

void ShmQueuePair::set_doorbell(bool armed) {
  const std::lock_guard lock(lock_);
  if (in_) in_->header().doorbell_armed.store(armed ? 1 : 0, std::memory_order_seq_cst);
}

void ShmQueuePair::drive_and_arm() {
  drive();
  if (is_polled()) return;
  set_doorbell(true);
  drive();  // what arrived before the doorbell was armed did not ring it
}

void ShmQueuePair::check_timers(uint64_t now) {
  {
    const std::lock_guard lock(lock_);
    if (out_ && link_ && !link_->alive() && soft::can_respond(state())) {
      fail(Status::retry_exc_err);  // bound to a link that has failed
    }
    const uint64_t limit = soft::retry_limit_ns(attributes_.timeout, attributes_.retry_count);
    const uint64_t mark = send_queue_.head() + (out_ ? out_->produced() + out_->acknowledged() : 0);
    const bool waiting = send_queue_.head() != send_queue_.tail() && state() == QpState::rts && limit != 0;
    const bool stalled = out_ && out_->header().stalled.load(std::memory_order_relaxed) != 0;
    if (!waiting || stalled || mark != timer_mark_ || timer_since_ns_ == 0) {
      timer_mark_ = mark;
      timer_since_ns_ = now;
      return;
    }
    if (now - timer_since_ns_ < std::max(limit, kMinRetryLimitNs)) return;
    fail(Status::retry_exc_err);
  }
  after_unlock();
}

void ShmQueuePair::link_failed(const Link& link) {
  {
    const std::lock_guard lock(lock_);
    if (link_.get() != &link || state() == QpState::err || state() == QpState::reset) return;
    advance();  // what the peer finished before it died counts
    if (soft::can_respond(state())) fail(Status::retry_exc_err);
    unreachable_ = true;
  }
  after_unlock();
}

std::optional<PeerAccess> ShmQueuePair::current_access_locked() const {
  if (!in_ || !link_) return std::nullopt;
  const auto& epoch = in_->header().access_epoch;
  const uint64_t seen = epoch.load(std::memory_order_seq_cst);
  if (seen % 2 == 0) return std::nullopt;
  return PeerAccess{in_mapping_, link_, &epoch, seen};
}

std::optional<PeerAccess> ShmQueuePair::current_access() const {
  const std::lock_guard lock(lock_);
  return current_access_locked();
}

}  // namespace verbena::shm
