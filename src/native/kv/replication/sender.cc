#include "kv/replication/sender.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::kv {

using transport::Outcome;

ReplicationSender::ReplicationSender(std::shared_ptr<Engine> engine, EventLoop& loop,
                                     std::shared_ptr<transport::Node> node,
                                     std::shared_ptr<transport::Session> session,
                                     const ReplicationSenderOptions& options, std::unique_ptr<BaseCopy> copy,
                                     std::unique_ptr<BacklogReader> reader, std::function<void()> on_receipt)
    : engine_(std::move(engine)),
      loop_(loop),
      node_(std::move(node)),
      session_(std::move(session)),
      options_(options),
      copy_(std::move(copy)),
      reader_(std::move(reader)),
      backlog_(engine_->backlog()),
      ring_memory_(std::calloc(1, usable_ring(options.ring_bytes)), std::free),
      ring_(static_cast<std::byte*>(ring_memory_ ? ring_memory_.get() : throw std::bad_alloc()),
            usable_ring(options.ring_bytes)),
      registration_(ring_.data(), ring_.size(), access::local_write) {
  shared_->counters.copying = copy_ != nullptr;
  shared_->counters.receipt_ns = now_ns();
  shared_->on_receipt = std::move(on_receipt);
  shared_->backlog = &backlog_;
  const auto held = engine_->lock();
  send_turn_ = loop_.add_hook(EventLoop::Moment::after, [this](uint64_t now) {
    uint64_t due = EventLoop::kNever;
    or_end([&] { due = turn(now); });
    return due;
  });
  if (options_.position) {
    yield_turn_ = loop_.add_hook(EventLoop::Moment::before, [this](uint64_t now) {
      or_end([&] { yield_to_replica(now); });
      return EventLoop::kNever;
    });
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    or_end_process("sending to a replica", [&] {
      name_thread("verbena-sender");
      or_end([&] { run(stop); });
      finish();
    });
  });
}

ReplicationSender::~ReplicationSender() {
  {
    const auto held = engine_->lock();
    loop_.remove_hook(send_turn_);
    loop_.remove_hook(yield_turn_);
  }
  thread_.request_stop();
  backlog_.wake_all();
  thread_.join();
  {
    const auto held = engine_->lock();
    copy_.reset();
  }
  const std::lock_guard held(shared_->mutex);
  shared_->on_receipt = nullptr;
  shared_->backlog = nullptr;
}

ReplicationSenderCounters ReplicationSender::counters() const {
  const std::lock_guard held(shared_->mutex);
  return shared_->counters;
}

void ReplicationSender::set_eager(bool eager) {
  shared_->eager = eager;
  if (eager) backlog_.wake_all();
}

void ReplicationSender::stop(const std::string& why) {
  end(why);
  backlog_.wake_all();
}

// Calls the function; an exception ends this replica's link, and nothing else.
template <typename Function>
void ReplicationSender::or_end(Function function) {
  try {
    function();
  } catch (const std::bad_alloc&) {
    end("not enough memory");
  } catch (const std::exception& error) {
    end(error.what());
  }
}

void ReplicationSender::end(const std::string& why) {
  const std::lock_guard held(shared_->mutex);
  shared_->counters.ended = true;
  if (shared_->counters.why.empty()) shared_->counters.why = why;
}

// On the thread that drives the node, with the node's lock.
void ReplicationSender::take_receipt(Shared& shared, const transport::Operation& call, uint64_t end,
                                     uint32_t rewinds) {
  const std::lock_guard held(shared.mutex);
  LogReceipt receipt;
  ReplicationSenderCounters& counters = shared.counters;
  if (call.outcome != Outcome::ok || call.answer().size() != sizeof receipt) {
    counters.ended = true;
    if (counters.why.empty()) {
      counters.why = "the replica replied: " +
                     std::string(reinterpret_cast<const char*>(call.answer().data()), call.answer().size());
    }
  } else {
    std::memcpy(&receipt, call.answer().data(), sizeof receipt);
    if (receipt.expected < counters.acknowledged || receipt.expected > counters.sent) {
      counters.ended = true;
      counters.why = "the replica acknowledged a position that was not sent";
    } else {
      // A piece was not applied: none that was sent after it will be, and their receipts must not cause
      // another rewind.
      shared.rewind |= receipt.expected < end && rewinds == shared.rewinds;
      counters.acknowledged = receipt.expected;
      counters.lsn = receipt.lsn;
      counters.offset = receipt.offset;
      counters.durable = receipt.durable_offset;
      counters.receipt_ns = now_ns();
    }
  }
  if ((shared.eager || counters.ended) && shared.on_receipt) shared.on_receipt();
  if ((counters.ended || shared.rewind) && shared.backlog) shared.backlog->wake_all();
}

// Waiting for more records costs less per record; not while a client waits for receipts.
bool ReplicationSender::is_early(uint64_t now) const {
  return !shared_->eager && !copy_ && filled_ == sent_ && now < sent_ns_ + send_interval_ns() &&
         reader_->lag_bytes() < kPieceBytes;
}

ReplicaPosition ReplicationSender::replica_position() const {
  if (!options_.position) return {};
  // The replica's process writes it at any time.
  const auto* at = static_cast<const ReplicaPosition*>(options_.position);
  return {__atomic_load_n(&at->expected, __ATOMIC_RELAXED), __atomic_load_n(&at->active, __ATOMIC_RELAXED)};
}

void ReplicationSender::drop_applied(uint64_t expected) {
  while (!unapplied_.empty() && unapplied_.front().end <= expected) unapplied_.pop_front();
}

// On a host with few processors this thread and the writing clients compete with a replica that has something
// to apply. Replies have been sent; while this sleeps, no further command begins. It takes at most an eighth
// of the time, and does not repeat for a piece that does not get applied.
void ReplicationSender::yield_to_replica(uint64_t now) {
  const std::unique_lock held(work_mutex_, std::try_to_lock);
  if (!held.owns_lock() || !replica_position().active) return;
  yield_budget_ns_ = std::min(yield_budget_ns_ + (now - budget_updated_ns_) / 8, kMaxYieldNs);
  budget_updated_ns_ = now;
  const auto is_late = [this] {
    drop_applied(replica_position().expected);
    return !unapplied_.empty() && unix_ns() > unapplied_.front().visible_ns + kLateNs;
  };
  if (!is_late() || unapplied_.front().end == yielded_for_) return;
  while (yield_budget_ns_ > 0 && is_late()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kYieldSleepNs));
    const uint64_t yielded = now_ns() - budget_updated_ns_;
    budget_updated_ns_ += yielded;
    yield_budget_ns_ -= std::min(yielded, yield_budget_ns_);
  }
  if (is_late()) yielded_for_ = unapplied_.front().end;
  const std::lock_guard also(shared_->mutex);
  shared_->counters.yielded_ns += budget_updated_ns_ - now;
}

// When to request a receipt although there is nothing to send: at once if a client waits for one.
uint64_t ReplicationSender::ping_ns() const {
  const bool eager = shared_->eager;
  if (sent_ > requested_) return eager ? 0 : sent_ns_ + kMessageIntervalNs;
  return sent_ns_ + (eager ? kEagerPingNs : kPingNs);
}

bool ReplicationSender::rewind_if_requested() {
  const std::lock_guard held(shared_->mutex);
  if (shared_->counters.ended) return false;
  // The replica had applied more than its earlier receipt reported: those pieces are no longer in the ring.
  sent_ = std::max(sent_, shared_->counters.acknowledged);
  drop_applied(shared_->counters.acknowledged);
  if (!shared_->rewind) return true;
  // A broken link lost a WRITE or a message.
  shared_->rewind = false;
  unapplied_.clear();
  sent_ = requested_ = shared_->counters.acknowledged;
  rewinds_ = ++shared_->rewinds;
  ++shared_->counters.repeats;
  return true;
}

bool ReplicationSender::has_more() const {
  return copy_ || unplaced_from_ < unplaced_.size() || reader_->lag_bytes() > 0 || reader_->is_lost();
}

// Sends one piece, or a request for a receipt. On the event loop it never blocks.
ReplicationSender::Step ReplicationSender::step(uint64_t now, bool by_loop) {
  if (!rewind_if_requested()) return Step::blocked;
  if (filled_ == sent_) {
    const bool more = has_more();
    if (more && !copy_ && visible_ns_ == 0) visible_ns_ = unix_ns();
    if (more && is_early(now)) return Step::early;
    if (more ? !fill() : now < ping_ns()) return more ? Step::blocked : Step::idle;
  }
  auto held = by_loop ? node_->try_lock() : node_->lock();
  return held.owns_lock() && send() ? Step::done : Step::blocked;
}

uint64_t ReplicationSender::turn(uint64_t now) {
  const std::unique_lock held(work_mutex_, std::try_to_lock);
  if (!held.owns_lock() || copy_ || stopped_) return EventLoop::kNever;  // the sender's thread does the work
  Step last = Step::done;
  while (last == Step::done) last = step(now, true);
  if (last == Step::early) return sent_ns_ + send_interval_ns();
  if (last == Step::blocked) backlog_.wake_all();
  return last == Step::idle && sent_ > requested_ ? ping_ns() : EventLoop::kNever;
}

void ReplicationSender::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      const std::lock_guard held(shared_->mutex);
      if (shared_->counters.ended) break;
    }
    const uint64_t wakes = backlog_.wakes();
    std::unique_lock held(work_mutex_);
    const uint64_t now = now_ns();
    switch (step(now, false)) {
      case Step::done:
        break;
      case Step::early: {
        const uint64_t due = std::max(now, sent_ns_ + send_interval_ns());
        held.unlock();
        std::this_thread::sleep_for(std::chrono::nanoseconds(due - now));
        break;
      }
      case Step::idle: {
        const uint64_t offset = reader_->offset(), ping = ping_ns();
        held.unlock();
        backlog_.wait_for_records(offset, ping, wakes, true);
        break;
      }
      case Step::blocked:
        held.unlock();
        node_->drive_or_sleep();
        // The ring is full, or there is no link: that takes more than microseconds to change.
        if (node_->options().sleeps) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void ReplicationSender::finish() {
  end("the sender was stopped");
  {
    const std::lock_guard held(shared_->mutex);
    if (shared_->on_receipt) shared_->on_receipt();
  }
  const std::lock_guard held(work_mutex_);
  stopped_ = true;
  const auto also = node_->lock();
  registration_.close();
}

}  // namespace verbena::kv
