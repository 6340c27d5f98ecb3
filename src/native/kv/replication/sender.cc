#include "kv/replication/sender.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/thread_name.h"

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
      ring_(usable_ring(options.ring_bytes)),
      registration_(ring_.data(), ring_.size(), access::local_write) {
  shared_->counters.copying = copy_ != nullptr;
  shared_->counters.receipt_ns = now_ns();
  shared_->on_receipt = std::move(on_receipt);
  shared_->backlog = &backlog_;
  const auto held = engine_->lock();
  send_turn_ = loop_.add_hook(EventLoop::Moment::after, [this](uint64_t now) { return turn(now); });
  if (options_.place) {
    yield_turn_ = loop_.add_hook(EventLoop::Moment::before,
                                 [this](uint64_t now) { return yield_to_replica(now), EventLoop::kNever; });
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
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

// Puts one piece into the ring; false: there are no records, or no room.
bool ReplicationSender::fill() {
  uint64_t acknowledged;
  {
    const std::lock_guard held(shared_->mutex);
    acknowledged = shared_->counters.acknowledged;
  }
  const uint64_t position = next_piece(filled_, ring_.size());
  const size_t at = position % ring_.size(), used = static_cast<size_t>(position - acknowledged);
  if (used + piece_bytes(1) > ring_.size()) return false;
  const size_t room = std::min({ring_.size() - used, ring_.size() - at, piece_bytes(kPieceBytes)});
  char* const to = reinterpret_cast<char*>(ring_.data()) + at;
  const size_t length = read({to + sizeof(LogPiece), room - sizeof(LogPiece)});
  if (length == 0) return false;
  std::memset(to + sizeof(LogPiece) + length, 0, padded(length) - length);
  LogPiece piece{.mark = options_.mark + position,
                 .visible_ns = visible_ns_,
                 .length = static_cast<uint32_t>(length),
                 .crc = 0};
  piece.crc = piece_crc(piece, to + sizeof piece);
  std::memcpy(to, &piece, sizeof piece);
  filled_ = position + piece_bytes(length);
  if (copy_ || !has_more()) visible_ns_ = 0;
  return true;
}

size_t ReplicationSender::read(std::span<char> to) {
  if (unplaced_from_ == unplaced_.size()) {
    unplaced_.clear();
    unplaced_from_ = 0;
    if (copy_) {
      const auto held = engine_->lock();
      const bool more = copy_->read(unplaced_, 4 * kPieceBytes);
      if (!copy_->error().empty()) {
        end(copy_->error());
        return 0;
      }
      double fraction = copy_->fraction();
      if (!more) {
        reader_ = copy_->take_reader();
        copy_.reset();
        fraction = 1;
      }
      const std::lock_guard also(shared_->mutex);
      shared_->counters.copying = copy_ != nullptr;
      shared_->counters.fraction = fraction;
    } else {
      if (const size_t bytes = reader_->read(to)) return bytes;
      // There is no record, or the next one does not fit.
      if (!reader_->read(unplaced_, kPieceBytes)) {
        end("the replica was too slow: its next records are no longer in the backlog");
        return 0;
      }
    }
  }
  const size_t bytes = std::min(to.size(), unplaced_.size() - unplaced_from_);
  std::memcpy(to.data(), unplaced_.data() + unplaced_from_, bytes);
  unplaced_from_ += bytes;
  return bytes;
}

bool ReplicationSender::send() {
  const uint64_t position = next_piece(sent_, ring_.size());
  const size_t at = position % ring_.size();
  LogPiece piece{};
  if (sent_ < filled_) std::memcpy(&piece, ring_.data() + at, sizeof piece);
  const size_t bytes = sent_ < filled_ ? piece_bytes(piece.length) : 0;
  LogMessage message{.end = bytes > 0 ? position + bytes : sent_, .flags = 0, .unused = 0};
  const bool requests_receipt = wants_receipt(message.end),
             sends_message = requests_receipt || !options_.by_write;
  const bool inlined =
      bytes > 0 && (!options_.by_write || (requests_receipt && piece.length <= options_.max_inline));
  if (requests_receipt) message.flags |= kWantsReceipt;
  if (inlined) message.flags |= kPieceFollows;
  if (session_->is_over()) {
    end("the session has ended");
    return false;
  }
  if (!session_->may_stream()) return false;
  if (bytes > 0 && !inlined && !write(at, bytes)) return false;
  transport::Operation* call = nullptr;
  if (sends_message) {
    std::string text(sizeof message + (inlined ? bytes : 0), '\0');
    std::memcpy(text.data(), &message, sizeof message);
    if (inlined) std::memcpy(text.data() + sizeof message, ring_.data() + at, bytes);
    static const uint32_t method = transport::method::of_name(kLogMethod);
    call = session_->call(method, std::as_bytes(std::span(text)));
    if (!call) return false;
  }
  sent_ = message.end;
  sent_ns_ = now_ns();
  if (piece.visible_ns != 0 && replica_position().active) unapplied_.push_back({sent_, piece.visible_ns});
  if (requests_receipt) {
    requested_ = sent_;
    requested_ns_ = sent_ns_;
  }
  {
    const std::lock_guard also(shared_->mutex);
    shared_->counters.sent = std::max(shared_->counters.sent, sent_);
    shared_->counters.messages += sends_message;
    shared_->counters.inlined += inlined;
    shared_->counters.writes += bytes > 0 && !inlined;
  }
  if (!call) return true;
  transport::Session::then(*call,
                           [shared = shared_, end = sent_, rewinds = rewinds_](transport::Operation& answer) {
                             take_receipt(*shared, answer, end, rewinds);
                           });
  return true;
}

bool ReplicationSender::write(size_t at, size_t bytes) {
  const transport::RemoteRegion* region = session_->region(options_.ring_key);
  if (!region) return false;
  if (region->refused != Outcome::ok || (region->known && region->length < ring_.size())) {
    end("the replica's ring is missing, too short or not accessible");
    return false;
  }
  if (!region->known) return false;
  uint32_t lkey;
  try {
    lkey =
        node_->registering([&] { return registration_.lkey(session_->link()->port(), ring_.data() + at); });
  } catch (const std::exception& error) {
    end(error.what());
    return false;
  }
  return session_->stream(ring_.data() + at, static_cast<uint32_t>(bytes), lkey, region->addr + at,
                          region->rkey, nullptr);
}

// Receipts free the ring, and messages keep the replica polling.
bool ReplicationSender::wants_receipt(uint64_t end) const {
  return end == sent_ || shared_->eager || end - requested_ >= ring_.size() / 2 ||
         now_ns() - requested_ns_ >= kMessageIntervalNs;
}

// Waiting for more records costs less per record; not while a client waits for receipts.
bool ReplicationSender::is_early(uint64_t now) const {
  return !shared_->eager && !copy_ && filled_ == sent_ && now < sent_ns_ + send_interval_ns() &&
         reader_->lag_bytes() < kPieceBytes;
}

ReplicaPosition ReplicationSender::replica_position() const {
  if (!options_.place) return {};
  // The replica's process writes it at any time.
  const auto* at = static_cast<const ReplicaPosition*>(options_.place);
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

void ReplicationSender::rewind_if_requested() {
  const std::lock_guard held(shared_->mutex);
  // The replica had applied more than its earlier receipt reported: those pieces are no longer in the ring.
  sent_ = std::max(sent_, shared_->counters.acknowledged);
  drop_applied(shared_->counters.acknowledged);
  if (!shared_->rewind) return;
  // A broken link lost a WRITE or a message.
  shared_->rewind = false;
  unapplied_.clear();
  sent_ = requested_ = shared_->counters.acknowledged;
  rewinds_ = ++shared_->rewinds;
  ++shared_->counters.repeats;
}

bool ReplicationSender::has_more() const {
  return copy_ || unplaced_from_ < unplaced_.size() || reader_->lag_bytes() > 0 || reader_->is_lost();
}

// Sends one piece, or a request for a receipt. On the event loop it never blocks.
ReplicationSender::Step ReplicationSender::step(uint64_t now, bool by_loop) {
  rewind_if_requested();
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
  name_thread("verbena-sender");
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
