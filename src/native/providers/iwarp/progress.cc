// The progress thread of an iWARP context: reads sockets that no program thread polls, advances handshakes
// and closing connections, and runs timers. It never runs Python and never holds the last reference to an
// object of the program.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "providers/iwarp/context.h"
#include "util/clock.h"

namespace verbena::iwarp {
namespace {

constexpr int kHandshakeCheckMs = 10, kClosingCheckMs = 50, kIdleCheckMs = 1000;
constexpr uint64_t kIdMask = (uint64_t{1} << 56) - 1;

}  // namespace

void IwarpContext::run(const std::stop_token& stop) {
  uint64_t tick_at = 0;
  while (!stop.stop_requested()) {
    const uint64_t before = now_ns();
    const uint64_t wake_at = transport_ ? std::min(tick_at, transport_->deadline_ns()) : tick_at;
    // A stream that is still ready, or that this thread itself found ready, does not signal the doorbell.
    const bool is_due = wake_at <= before || (transport_ && transport_->ready_count() > 0);
    const uint64_t left_ms = is_due ? 0 : (wake_at - before + 999'999) / 1'000'000;
    epoll_event events[64];
    const int count = epoll_wait(progress_.epoll(), events, std::size(events), static_cast<int>(left_ms));
    bool is_woken = false;
    for (int i = 0; i < count; ++i) {
      const auto tag = static_cast<Tag>(events[i].data.u64 >> 56);
      is_woken = is_woken || (tag != Tag::queue_pair && tag != Tag::transport);
      handle(tag, events[i].data.u64 & kIdMask);
    }
    if (transport_) is_woken = run_transport() || is_woken;
    take_posted_work();
    // Data on queue pairs alone is no reason to check the timers of all queue pairs.
    const uint64_t now = now_ns();
    if (is_woken || now >= tick_at) tick_at = now + static_cast<uint64_t>(tick(now)) * 1'000'000;
  }
}

// Runs the transport's timers, accepts streams that peers have opened, and handles ready streams. True when
// there was more than data on queue pairs.
bool IwarpContext::run_transport() {
  transport_->check_timers(now_ns());
  bool has_event = false;
  if (transport_->has_incoming()) accept_streams();
  // Streams that become ready again meanwhile are handled after the sockets.
  for (size_t left = transport_->ready_count(); left > 0; --left) {
    const auto key = transport_->take_ready();
    if (!key) break;
    const auto tag = static_cast<Tag>(*key >> 56);
    has_event = has_event || tag != Tag::queue_pair;
    handle(tag, *key & kIdMask);
    transport_->ready_handled(*key);
  }
  return has_event;
}

void IwarpContext::handle(Tag tag, uint64_t id) {
  switch (tag) {
    case Tag::transport:
      return transport_->receive(static_cast<int>(id));
    case Tag::doorbell:
      progress_.clear_doorbell();
      return;
    case Tag::queue_pair:
      with_qp(static_cast<uint32_t>(id),
              [](soft::SoftQueuePair& qp) { static_cast<IwarpQueuePair&>(qp).drive_readable(); });
      return;
    case Tag::listener: {
      const std::lock_guard lock(control_mutex_);
      const int socket = static_cast<int>(id);
      if (socket == node_endpoint_id_ || listeners_.contains(socket)) accept_peers(socket);
      return;
    }
    case Tag::handshake: {
      const std::lock_guard lock(control_mutex_);
      advance_handshake(id);
      return;
    }
    case Tag::closing: {
      const auto found = closing_.find(id);
      if (found != closing_.end() && found->second.advance(now_ns())) closing_.erase(found);
      return;
    }
  }
}

void IwarpContext::take_posted_work() {
  std::vector<uint32_t> searching, lost;
  std::vector<ClosingConnection> newly_closing;
  {
    const std::lock_guard lock(posted_mutex_);
    searching.swap(searching_qps_);
    lost.swap(lost_);
    newly_closing.swap(newly_closing_);
  }
  for (ClosingConnection& closing : newly_closing) {
    const uint64_t id = next_closing_id_++;
    const uint32_t events = EPOLLIN | (closing.is_half_closed ? 0u : uint32_t{EPOLLOUT});
    const auto& placed = closing_[id] = std::move(closing);
    watch(placed.socket, Tag::closing, id, events | EPOLLET, EPOLL_CTL_ADD);
  }
  closing_count_.store(closing_.size(), std::memory_order_relaxed);
  if (searching.empty() && lost.empty()) return;
  const std::lock_guard lock(control_mutex_);
  for (const uint32_t number : lost) {
    for (auto& [id, connection] : connections_) {
      if (connection->qp_number() == number) connection->on_lost();
    }
  }
  for (const uint32_t number : searching) find_peer_of(number);
}

int IwarpContext::tick(uint64_t now) {
  int next_ms = std::min(kIdleCheckMs, progress_.check_polled_queues());
  const auto within = [&next_ms](int ms) { next_ms = std::min(next_ms, ms); };
  for_each_qp([&](soft::SoftQueuePair& qp) { within(static_cast<IwarpQueuePair&>(qp).check_timers(now)); });
  for (auto at = closing_.begin(); at != closing_.end();) {
    at = at->second.advance(now) ? closing_.erase(at) : std::next(at);
    within(kClosingCheckMs);
  }
  const std::lock_guard lock(control_mutex_);
  check_handshakes(now);
  if (!handshakes_.empty()) within(kHandshakeCheckMs);
  for (const int listener : std::exchange(paused_listeners_, {})) {
    watch(listener, Tag::listener, static_cast<uint64_t>(listener), EPOLLIN, EPOLL_CTL_MOD);
    within(kHandshakeCheckMs);
  }
  return next_ms;
}

}  // namespace verbena::iwarp
