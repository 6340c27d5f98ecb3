#include "kv/replication/sender.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c.h"
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
  turn_ = loop_.add_hook(EventLoop::Moment::after, [this](uint64_t now) { return turn(now); });
  if (options_.place) {
    rest_ = loop_.add_hook(EventLoop::Moment::before,
                           [this](uint64_t now) { return give_way(now), EventLoop::kNever; });
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

ReplicationSender::~ReplicationSender() {
  {
    const auto held = engine_->lock();
    loop_.remove_hook(turn_);
    loop_.remove_hook(rest_);
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

// On whatever thread drives the node, with its lock.
void ReplicationSender::take_receipt(Shared& shared, const transport::Call& call, uint64_t end,
                                     uint32_t round) {
  const std::lock_guard held(shared.mutex);
  LogReceipt receipt;
  ReplicationSenderCounters& counters = shared.counters;
  if (call.outcome != Outcome::ok || call.answer().size() != sizeof receipt) {
    counters.ended = true;
    if (counters.why.empty()) {
      counters.why = "the replica answered: " +
                     std::string(reinterpret_cast<const char*>(call.answer().data()), call.answer().size());
    }
  } else {
    std::memcpy(&receipt, call.answer().data(), sizeof receipt);
    if (receipt.expected < counters.acknowledged || receipt.expected > counters.sent) {
      counters.ended = true;
      counters.why = "the replica acknowledges what was not sent";
    } else {
      // Not taken: what has been sent since will not be, either, and does not ask for it once more.
      shared.rewind |= receipt.expected < end && round == shared.round;
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

// Makes one piece of the records that there are; false: there are none, or no room.
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
                 .told_ns = told_ns_,
                 .length = static_cast<uint32_t>(length),
                 .crc = 0};
  piece.crc = piece_crc(piece, to + sizeof piece);
  std::memcpy(to, &piece, sizeof piece);
  filled_ = position + piece_bytes(length);
  if (copy_ || !has_more()) told_ns_ = 0;
  return true;
}

size_t ReplicationSender::read(std::span<char> to) {
  if (waiting_from_ == waiting_.size()) {
    waiting_.clear();
    waiting_from_ = 0;
    if (copy_) {
      const auto held = engine_->lock();
      const bool more = copy_->read(waiting_, 4 * kPieceBytes);
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
      // There is nothing, or a record that does not fit.
      if (!reader_->read(waiting_, kPieceBytes)) {
        end("the replica was too slow: what it needs is not kept any more");
        return 0;
      }
    }
  }
  const size_t bytes = std::min(to.size(), waiting_.size() - waiting_from_);
  std::memcpy(to.data(), waiting_.data() + waiting_from_, bytes);
  waiting_from_ += bytes;
  return bytes;
}

bool ReplicationSender::send() {
  const uint64_t position = next_piece(sent_, ring_.size());
  const size_t at = position % ring_.size();
  LogPiece piece{};
  if (sent_ < filled_) std::memcpy(&piece, ring_.data() + at, sizeof piece);
  const size_t bytes = sent_ < filled_ ? piece_bytes(piece.length) : 0;
  LogMessage message{.end = bytes > 0 ? position + bytes : sent_, .flags = 0, .unused = 0};
  const bool asks = wants_receipt(message.end), speaks = asks || !options_.by_write;
  const bool inside = bytes > 0 && (!options_.by_write || (asks && piece.length <= options_.max_inline));
  if (asks) message.flags |= kWantsReceipt;
  if (inside) message.flags |= kPieceFollows;
  if (session_->is_over()) {
    end("the session has ended");
    return false;
  }
  if (!session_->may_stream()) return false;
  if (bytes > 0 && !inside && !write(at, bytes)) return false;
  transport::Call* call = nullptr;
  if (speaks) {
    std::string text(sizeof message + (inside ? bytes : 0), '\0');
    std::memcpy(text.data(), &message, sizeof message);
    if (inside) std::memcpy(text.data() + sizeof message, ring_.data() + at, bytes);
    static const uint32_t method = transport::method::of_name("kv.log");
    call = session_->call(method, std::as_bytes(std::span(text)));
    if (!call) return false;
  }
  sent_ = message.end;
  sent_ns_ = now_ns();
  if (piece.told_ns != 0 && place().hurries) unseen_.push_back({sent_, piece.told_ns});
  if (asks) {
    asked_ = sent_;
    asked_ns_ = sent_ns_;
  }
  {
    const std::lock_guard also(shared_->mutex);
    shared_->counters.sent = std::max(shared_->counters.sent, sent_);
    shared_->counters.messages += speaks;
    shared_->counters.inlined += inside;
    shared_->counters.writes += bytes > 0 && !inside;
  }
  if (!call) return true;
  transport::Session::then(*call, [shared = shared_, end = sent_, round = round_](transport::Call& answer) {
    take_receipt(*shared, answer, end, round);
  });
  return true;
}

bool ReplicationSender::write(size_t at, size_t bytes) {
  const transport::RemoteRegion* region = session_->region(options_.ring_key);
  if (!region) return false;
  if (region->refused != Outcome::ok || (region->known && region->length < ring_.size())) {
    end("the replica's ring is not there, or not for us");
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

// Now and then somebody must say how far the ring is free, and wake the replica.
bool ReplicationSender::wants_receipt(uint64_t end) const {
  return end == sent_ || shared_->eager || end - asked_ >= ring_.size() / 2 ||
         now_ns() - asked_ns_ >= kSpeakNs;
}

// More may come, and together it costs less; but not if somebody waits for it.
bool ReplicationSender::is_early(uint64_t now) const {
  return !shared_->eager && !copy_ && filled_ == sent_ && now < sent_ns_ + gap_ns() &&
         reader_->lag_bytes() < kPieceBytes;
}

LogPlace ReplicationSender::place() const {
  if (!options_.place) return {};
  // It is written by the other process.
  const auto* at = static_cast<const volatile LogPlace*>(options_.place);
  return {at->expected, at->hurries};
}

void ReplicationSender::forget_seen(uint64_t expected) {
  while (!unseen_.empty() && unseen_.front().end <= expected) unseen_.pop_front();
}

// Where processors are few, whoever writes and we are in the way of a replica that has something to apply.
// The replies have been sent; for as long as this lasts, nobody else's command is begun. It takes an eighth
// of the time at most, and is not done twice for one that does not move.
void ReplicationSender::give_way(uint64_t now) {
  const std::unique_lock held(work_, std::try_to_lock);
  if (!held.owns_lock() || !place().hurries) return;
  may_rest_ns_ = std::min(may_rest_ns_ + (now - counted_ns_) / 8, kMostRestNs);
  counted_ns_ = now;
  const auto is_late = [this] {
    forget_seen(place().expected);
    return !unseen_.empty() && unix_ns() > unseen_.front().told_ns + kLateNs;
  };
  if (!is_late() || unseen_.front().end == rested_for_) return;
  while (may_rest_ns_ > 0 && is_late()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kNapNs));
    const uint64_t rested = now_ns() - counted_ns_;
    counted_ns_ += rested;
    may_rest_ns_ -= std::min(rested, may_rest_ns_);
  }
  if (is_late()) rested_for_ = unseen_.front().end;
  const std::lock_guard also(shared_->mutex);
  shared_->counters.rested_ns += counted_ns_ - now;
}

// When to ask for a receipt though there is nothing to send: at once, if somebody waits for one.
uint64_t ReplicationSender::ping_ns() const {
  const bool eager = shared_->eager;
  if (sent_ > asked_) return eager ? 0 : sent_ns_ + kSpeakNs;
  return sent_ns_ + (eager ? kEagerPingNs : kPingNs);
}

void ReplicationSender::rewind_if_asked() {
  const std::lock_guard held(shared_->mutex);
  // It had more than it said when it was asked: that has no place in the ring any more.
  sent_ = std::max(sent_, shared_->counters.acknowledged);
  forget_seen(shared_->counters.acknowledged);
  if (!shared_->rewind) return;
  // A link broke, and with it a WRITE was lost, or a message.
  shared_->rewind = false;
  unseen_.clear();
  sent_ = asked_ = shared_->counters.acknowledged;
  round_ = ++shared_->round;
  ++shared_->counters.repeats;
}

bool ReplicationSender::has_more() const {
  return copy_ || waiting_from_ < waiting_.size() || reader_->lag_bytes() > 0 || reader_->is_lost();
}

// One piece, or a question. The loop waits for nobody.
ReplicationSender::Step ReplicationSender::step(uint64_t now, bool by_loop) {
  rewind_if_asked();
  if (filled_ == sent_) {
    const bool more = has_more();
    if (more && !copy_ && told_ns_ == 0) told_ns_ = unix_ns();
    if (more && is_early(now)) return Step::early;
    if (more ? !fill() : now < ping_ns()) return more ? Step::stuck : Step::idle;
  }
  auto held = by_loop ? node_->try_lock() : node_->lock();
  return held.owns_lock() && send() ? Step::done : Step::stuck;
}

uint64_t ReplicationSender::turn(uint64_t now) {
  const std::unique_lock held(work_, std::try_to_lock);
  if (!held.owns_lock() || copy_ || over_) return EventLoop::kNever;  // the thread is at it
  Step last = Step::done;
  while (last == Step::done) last = step(now, true);
  if (last == Step::early) return sent_ns_ + gap_ns();
  if (last == Step::stuck) backlog_.wake_all();
  return last == Step::idle && sent_ > asked_ ? ping_ns() : EventLoop::kNever;
}

void ReplicationSender::run(const std::stop_token& stop) {
  name_thread("verbena-sender");
  while (!stop.stop_requested()) {
    {
      const std::lock_guard held(shared_->mutex);
      if (shared_->counters.ended) break;
    }
    const uint64_t wakes = backlog_.wakes();
    std::unique_lock held(work_);
    const uint64_t now = now_ns();
    switch (step(now, false)) {
      case Step::done:
        break;
      case Step::early: {
        const uint64_t due = std::max(now, sent_ns_ + gap_ns());
        held.unlock();
        std::this_thread::sleep_for(std::chrono::nanoseconds(due - now));
        break;
      }
      case Step::idle: {
        const uint64_t offset = reader_->offset(), ping = ping_ns();
        held.unlock();
        backlog_.wait_beyond(offset, ping, wakes, true);
        break;
      }
      case Step::stuck:
        held.unlock();
        node_->linger();
        // There is no room, or no link: nothing changes within microseconds.
        if (node_->options().sleeps) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  end("it was stopped");
  {
    const std::lock_guard held(shared_->mutex);
    if (shared_->on_receipt) shared_->on_receipt();
  }
  const std::lock_guard held(work_);
  over_ = true;
  const auto also = node_->lock();
  registration_.close();
}

}  // namespace verbena::kv
