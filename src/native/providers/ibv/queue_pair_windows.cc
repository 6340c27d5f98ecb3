// Requests that bind windows. They have slots of their own, and the provider consumes their completions.
#include <thread>

#include "providers/ibv/queue_pair.h"
#include "providers/ibv/requests.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/waiter.h"

namespace verbena::ibv {
namespace {

// How long a bind may wait behind other requests when its window has to end. A device needs microseconds;
// only a peer that does not acknowledge takes longer.
constexpr uint64_t kBindNs = 20'000'000;

}  // namespace

bool IbvQueuePair::has_windows() {
  if (bind_slots_ == 0) return false;
  if (!cq_has_bind_room_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(send_lock_);
    if (!cq_has_bind_room_.load(std::memory_order_relaxed))
      cq_has_bind_room_.store(send_cq_->add_room(bind_slots_), std::memory_order_release);
  }
  return cq_has_bind_room_.load(std::memory_order_acquire);
}

std::optional<uint32_t> IbvQueuePair::post_bind(ibv_mw* mw, uint32_t key, const ibv_mw_bind_info& info) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  // Signalled: invalidating the window must know that the bind has ended.
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = key;
  request.bind_mw.bind_info = info;
  std::optional<uint32_t> position;
  const bool is_posted = Waiter(kBindNs, kNever).spin<1>([&] {
    if (try_post_bind(request, position)) return true;
    send_cq_->collect();
    std::this_thread::yield();
    return false;
  });
  if (!is_posted)
    throw Error("queue_full", "bind a window", "earlier binds wait behind requests in progress");
  return position;
}

bool IbvQueuePair::try_post_bind(ibv_send_wr& request, std::optional<uint32_t>& position) {
  const std::lock_guard lock(send_lock_);
  const QpState state = state_.load(std::memory_order_acquire);
  if (state != QpState::rts && state != QpState::sqd) return true;
  if (!sends_->has_bind_room()) return false;
  position = sends_->stage_bind();
  request.wr_id = make_wr_id(send_queue_, *position);
  sends_->commit(1);
  ibv_send_wr* bad = nullptr;
  if (const int failure = ibv_post_send(qp_, &request, &bad)) {
    sends_->take_back_bind();
    position.reset();
    if (post_error(failure) == PostError::full) return false;
    throw Error("invalid_argument", "bind a window", "the device refused the request", failure);
  }
  return true;
}

void IbvQueuePair::await_bind(uint32_t position) {
  const bool has_ended = Waiter(kBindNs, kNever).spin<1>([&] {
    if (sends_->has_finished(position)) return true;
    send_cq_->collect();
    if (sends_->has_finished(position)) return true;
    std::this_thread::yield();
    return false;
  });
  if (!has_ended) move_to_err();
}

}  // namespace verbena::ibv
