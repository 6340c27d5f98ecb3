#include "providers/iwarp/queue_pair.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "providers/iwarp/context.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::iwarp {
namespace {

// Linux siw may miss a first message that follows its reply immediately.
constexpr uint64_t kForeignPauseNs = 100'000'000;

// The operations that RFC 7306 adds. A peer cannot be asked whether it supports them, so they are sent to
// Verbena ends only.
constexpr std::array kExtensions = {Opcode::write_with_imm, Opcode::send_with_imm, Opcode::compare_swap,
                                    Opcode::fetch_add};

IwarpCompletionQueue& iwarp_cq(const std::shared_ptr<CompletionQueue>& cq) {
  auto* queue = dynamic_cast<IwarpCompletionQueue*>(cq.get());
  if (!queue)
    throw Error("invalid_argument", "create queue pair", "the completion queue must belong to this device");
  return *queue;
}

const char* marker_use(const Agreement& agreement) {
  if (agreement.sends_markers) return agreement.expects_markers ? "both ways" : "sent";
  return agreement.expects_markers ? "received" : "none";
}

bool send_frame(net::StreamSocket& socket, const std::vector<uint8_t>& output) {
  // A new socket has room for a set-up frame; if it has not, it is unusable.
  if (output.empty()) return true;
  return socket.write(output.data(), output.size()) == static_cast<ssize_t>(output.size()) && socket.flush();
}

}  // namespace

IwarpQueuePair::IwarpQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options,
                               uint32_t number, IwarpContext& context)
    : SoftQueuePair(std::move(domain), options, number),
      iwarp_(context),
      send_cq_(iwarp_cq(options.send_cq)),
      recv_cq_(iwarp_cq(options.recv_cq)),
      numbers_(std::bit_ceil(std::max(options.limits.max_send, 1u))) {
  send_cq_.count_member(1);
  if (&recv_cq_ != &send_cq_) recv_cq_.count_member(1);
  allow_extensions(context.options().acknowledged);
}

void IwarpQueuePair::allow_extensions(bool allowed) {
  for (const Opcode opcode : kExtensions) send_queue_.allow(opcode, allowed);
}

Capabilities IwarpQueuePair::capabilities() const {
  const std::lock_guard lock(lock_);
  // Connections by endpoint exist between Verbena ends only, so an unconnected QP expects one.
  const bool acknowledged =
      channel_ ? channel_->stream().agreement().acknowledged : iwarp_.options().acknowledged;
  const char* ours = acknowledged ? "yes" : "no";
  const char* crc = !channel_ ? "not connected" : channel_->stream().agreement().crc ? "crc32c" : "none";
  const char* markers = !channel_ ? "not connected" : marker_use(channel_->stream().agreement());
  const net::ByteStream* stream = channel_ ? channel_->stream_socket().stream() : nullptr;
  const std::string cipher = !channel_ ? "not connected" : stream ? stream->cipher() : "none";
  return {{"acknowledged", ours}, {"atomics", ours},    {"immediate", ours},
          {"checksum", crc},      {"markers", markers}, {"encryption", cipher}};
}

IwarpQueuePair::Admission IwarpQueuePair::admits(const Gid& gid, uint32_t peer_qp) const {
  const std::lock_guard lock(lock_);
  if (!soft::can_respond(state())) return Admission::later;
  const bool same = attributes_.dest_gid == gid && attributes_.dest_qp_num == peer_qp;
  if (!same) return Admission::later;  // the QP may yet be reset and connected to this peer
  // The same peer connects again: it has given up the connection that was accepted before.
  return !channel_ || is_fresh() ? Admission::now : Admission::never;
}

bool IwarpQueuePair::is_fresh() const {
  const Stream& stream = channel_->stream();
  return !stream.agreement().initiator && !stream.has_received() && !stream.fault();
}

bool IwarpQueuePair::adopt(net::StreamSocket socket, const Agreement& agreement, uint32_t own_ird,
                           const std::vector<uint8_t>& reply) {
  {
    const std::lock_guard lock(lock_);
    if (state() == QpState::reset || state() == QpState::err) return false;
    if (channel_ && is_fresh()) close_channel();
    if (channel_) return false;
    if (!send_frame(socket, reply)) return false;
    if (socket.has_socket()) net::disable_pacing_within_host(socket.socket());
    channel_ = std::make_unique<Channel>(std::move(socket), agreement, own_ird, attributes_.min_rnr_timer,
                                         static_cast<StreamHost&>(*this));
    unreachable_ = false;
    wake_bytes_ = 1;
    timer_since_ns_ = 0;
    const bool foreign = agreement.peer_qp == 0;
    pause_until_ns_ = agreement.initiator && foreign ? now_ns() + kForeignPauseNs : 0;
    allow_extensions(agreement.acknowledged);
    transmit();
    watch();
  }
  after_unlock();
  iwarp_.wake();
  return true;
}

void IwarpQueuePair::peer_unreachable() {
  {
    const std::lock_guard lock(lock_);
    if (channel_ || !soft::can_respond(state())) return;
    unreachable_ = true;
    transmit();
  }
  after_unlock();
}

void IwarpQueuePair::wire_state_changed(QpState state) {
  if (state == QpState::rtr) {
    if (!channel_) {
      generation_.fetch_add(1, std::memory_order_relaxed);
      iwarp_.search_peer(number_);
    }
    watch();
    return;
  }
  if (state != QpState::err && state != QpState::reset) return;
  stalled_.store(false, std::memory_order_relaxed);
  if (state == QpState::err) drop_partial_receive();
  close_channel();
  if (state == QpState::reset) reset_connection_state();
}

void IwarpQueuePair::drop_partial_receive() {
  if (!has_receive_) return;
  has_receive_ = false;
  complete_receive(receive_, std::exchange(receive_status_, Status::wr_flush_err), 0, nullptr, false);
}

void IwarpQueuePair::reset_connection_state() {
  has_receive_ = unreachable_ = peer_not_ready_ = output_is_stale_ = termination_is_known_ = false;
  reads_after_send_.store(false, std::memory_order_relaxed);
  halted_at_ = rnr_deadline_ns_ = kNever;
  emit_ = settled_ = send_queue_.tail();
  pending_.clear();
  termination_ = Status::success;
  receive_status_ = Status::wr_flush_err;
  fault_since_ns_ = pause_until_ns_ = 0;
  end_code_.store({}, std::memory_order_relaxed);
  allow_extensions(iwarp_.options().acknowledged);
}

void IwarpQueuePair::close_channel() {
  if (!channel_) return;
  if (in_stream_) {
    channel_->stream().set_fault({});
    must_close_channel_ = true;
    return;
  }
  must_close_channel_ = false;
  lost_.store(true, std::memory_order_relaxed);
  // The program owns the requests' memory again once they are flushed: copy what must still be sent.
  std::vector<std::byte> output;
  const bool valid = channel_->check_output([this](const OutSegment& s) { return is_source_valid(s); });
  if (valid) output = channel_->rest_of_segment();
  iwarp_.close_gracefully(channel_->release_socket(), std::move(output), watched_ != 0);
  watched_ = 0;
  channel_.reset();
}

void IwarpQueuePair::lose_connection() {
  reap();  // requests that were finished before still count
  if (!channel_) return;
  if (watched_ != 0) iwarp_.unwatch(channel_->stream_socket());
  watched_ = 0;
  unreachable_ = !is_fresh();  // else the peer may connect again
  channel_.reset();
  lost_.store(true, std::memory_order_relaxed);
  if (unreachable_ && soft::can_respond(state()) && send_queue_.head() != send_queue_.tail()) {
    fail(Status::retry_exc_err);
  }
}

void IwarpQueuePair::disconnect_wire() {
  iwarp_.disconnect_qp(number_);
  send_cq_.count_member(-1);
  if (&recv_cq_ != &send_cq_) recv_cq_.count_member(-1);
}

void IwarpQueuePair::after_unlock() {
  if (lost_.load(std::memory_order_relaxed) && lost_.exchange(false, std::memory_order_relaxed)) {
    iwarp_.report_lost(number_);
  }
}

void IwarpQueuePair::receive_posted() {
  if (stalled_.load(std::memory_order_relaxed)) drive();
}

void IwarpQueuePair::update_watch() {
  {
    const std::lock_guard lock(lock_);
    resume_watch();
  }
  after_unlock();
}

// The thread that read the socket until now may have stopped before it sent a deferred acknowledgement.
void IwarpQueuePair::resume_watch() {
  if (channel_ && !is_polled() && channel_->stream().is_ack_due()) transmit();
  watch();
}

void IwarpQueuePair::watch() {
  if (!channel_) return;
  uint32_t wanted = 0;
  if (!is_polled() && !reads_after_send_.load(std::memory_order_relaxed) && soft::can_respond(state())) {
    wanted = (channel_->stream().fault() ? 0u : uint32_t{EPOLLIN}) |
             (channel_->has_output() ? uint32_t{EPOLLOUT} : 0u);
  }
  if (wanted == watched_) return;
  iwarp_.watch_qp(channel_->stream_socket(), number_, wanted, watched_ != 0);
  watched_ = wanted;
}

void IwarpQueuePair::drive_readable() {
  // The thread that sends a long request reads afterwards; bytes that remain then wake the progress thread
  // again.
  if (reads_after_send_.load(std::memory_order_relaxed)) return;
  readable_.store(true, std::memory_order_relaxed);
  drive();
}

}  // namespace verbena::iwarp
