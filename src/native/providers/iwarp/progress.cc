// The progress thread of a context: sockets nobody polls, handshakes, farewells, timers. It never runs Python
// and never holds the last reference to anything the program owns.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "providers/iwarp/context.h"
#include "util/clock.h"

namespace verbena::iwarp {
namespace {

constexpr int kHandshakeCheckMs = 10, kFarewellCheckMs = 50, kIdleCheckMs = 1000;
constexpr uint64_t kIdMask = (uint64_t{1} << 56) - 1;

}  // namespace

void IwarpContext::run(const std::stop_token& stop) {
  uint64_t tick_at = 0;
  while (!stop.stop_requested()) {
    const uint64_t before = now_ns();
    const uint64_t wake_at = carrier_ ? std::min(tick_at, carrier_->deadline_ns()) : tick_at;
    // A stream that is still ready, or was found ready by this thread itself, rings no bell.
    const bool is_due = wake_at <= before || (carrier_ && carrier_->ready_count() > 0);
    const uint64_t left_ms = is_due ? 0 : (wake_at - before + 999'999) / 1'000'000;
    epoll_event events[64];
    const int count = epoll_wait(progress_.epoll(), events, std::size(events), static_cast<int>(left_ms));
    bool is_woken = false;
    for (int i = 0; i < count; ++i) {
      const auto tag = static_cast<Tag>(events[i].data.u64 >> 56);
      is_woken = is_woken || (tag != Tag::queue_pair && tag != Tag::carrier);
      handle(tag, events[i].data.u64 & kIdMask);
    }
    if (carrier_) is_woken = run_carrier() || is_woken;
    read_mail();
    // Traffic alone is no reason to look at every queue pair's clock.
    const uint64_t now = now_ns();
    if (is_woken || now >= tick_at) tick_at = now + static_cast<uint64_t>(tick(now)) * 1'000'000;
  }
}

// Its timers, the streams that peers have opened, and those that somebody waits for. True: not only traffic.
bool IwarpContext::run_carrier() {
  carrier_->check_timers(now_ns());
  bool is_news = false;
  if (carrier_->has_arrival()) accept_streams();
  // Those that are ready again meanwhile have their turn after the sockets.
  for (size_t left = carrier_->ready_count(); left > 0; --left) {
    const auto key = carrier_->next_ready();
    if (!key) break;
    const auto tag = static_cast<Tag>(*key >> 56);
    is_news = is_news || tag != Tag::queue_pair;
    handle(tag, *key & kIdMask);
    carrier_->looked_after(*key);
  }
  return is_news;
}

void IwarpContext::handle(Tag tag, uint64_t id) {
  switch (tag) {
    case Tag::carrier:
      return carrier_->receive(static_cast<int>(id));
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
      if (socket == node_place_ || listeners_.contains(socket)) accept_peers(socket);
      return;
    }
    case Tag::handshake: {
      const std::lock_guard lock(control_mutex_);
      advance_handshake(id);
      return;
    }
    case Tag::farewell: {
      const auto found = farewells_.find(id);
      if (found != farewells_.end() && found->second.advance(now_ns())) farewells_.erase(found);
      return;
    }
  }
}

void IwarpContext::read_mail() {
  std::vector<uint32_t> seekers, lost;
  std::vector<Farewell> leaving;
  {
    const std::lock_guard lock(mail_mutex_);
    seekers.swap(seekers_);
    lost.swap(lost_);
    leaving.swap(new_farewells_);
  }
  for (Farewell& farewell : leaving) {
    const uint64_t id = next_farewell_++;
    const uint32_t events = EPOLLIN | (farewell.half_closed ? 0u : uint32_t{EPOLLOUT});
    const auto& placed = farewells_[id] = std::move(farewell);
    watch(placed.wire, Tag::farewell, id, events | EPOLLET, EPOLL_CTL_ADD);
  }
  farewell_count_.store(farewells_.size(), std::memory_order_relaxed);
  if (seekers.empty() && lost.empty()) return;
  const std::lock_guard lock(control_mutex_);
  for (const uint32_t number : lost) {
    for (auto& [id, connection] : connections_) {
      if (connection->qp_number() == number) connection->on_lost();
    }
  }
  for (const uint32_t number : seekers) find_peer_of(number);
}

int IwarpContext::tick(uint64_t now) {
  int next_ms = std::min(kIdleCheckMs, progress_.check_polled_queues());
  const auto within = [&next_ms](int ms) { next_ms = std::min(next_ms, ms); };
  for_each_qp([&](soft::SoftQueuePair& qp) { within(static_cast<IwarpQueuePair&>(qp).check_timers(now)); });
  for (auto at = farewells_.begin(); at != farewells_.end();) {
    at = at->second.advance(now) ? farewells_.erase(at) : std::next(at);
    within(kFarewellCheckMs);
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
