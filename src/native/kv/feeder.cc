#include "kv/feeder.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c.h"

namespace verbena::kv {

using transport::Outcome;

Feeder::Feeder(std::shared_ptr<Engine> engine, std::shared_ptr<transport::Node> node,
               std::shared_ptr<transport::Session> session, const FeederOptions& options,
               std::unique_ptr<BaseCopy> copy, std::unique_ptr<Follower> follower,
               std::function<void()> on_receipt)
    : engine_(std::move(engine)),
      node_(std::move(node)),
      session_(std::move(session)),
      options_(options),
      copy_(std::move(copy)),
      follower_(std::move(follower)),
      tail_(engine_->tail()),
      ring_(options.ring_bytes),
      registration_(ring_.data(), ring_.size(), access::local_write) {
  shared_->figures.copying = copy_ != nullptr;
  shared_->figures.receipt_ns = now_ns();
  shared_->on_receipt = std::move(on_receipt);
  shared_->tail = &tail_;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Feeder::~Feeder() {
  thread_.request_stop();
  tail_.wake_all();
  thread_.join();
  {
    const auto held = engine_->lock();
    copy_.reset();
  }
  const std::lock_guard held(shared_->mutex);
  shared_->on_receipt = nullptr;
  shared_->tail = nullptr;
}

FeederFigures Feeder::figures() const {
  const std::lock_guard held(shared_->mutex);
  return shared_->figures;
}

void Feeder::set_eager(bool eager) {
  shared_->eager = eager;
  if (eager) tail_.wake_all();
}

void Feeder::end(const std::string& why) {
  const std::lock_guard held(shared_->mutex);
  shared_->figures.ended = true;
  if (shared_->figures.why.empty()) shared_->figures.why = why;
}

// On whatever thread drives the node, with its lock.
void Feeder::take_receipt(Shared& shared, const transport::Call& call, uint64_t end, uint32_t round) {
  const std::lock_guard held(shared.mutex);
  LogReceipt receipt;
  FeederFigures& figures = shared.figures;
  if (call.outcome != Outcome::ok || call.answer().size() != sizeof receipt) {
    figures.ended = true;
    if (figures.why.empty()) {
      figures.why = "the replica answered: " +
                    std::string(reinterpret_cast<const char*>(call.answer().data()), call.answer().size());
    }
  } else {
    std::memcpy(&receipt, call.answer().data(), sizeof receipt);
    if (receipt.expected < figures.acknowledged || receipt.expected > figures.sent) {
      figures.ended = true;
      figures.why = "the replica acknowledges what was not sent";
    } else {
      // Not taken: what has been sent since will not be, either, and does not ask for it once more.
      shared.rewind |= receipt.expected < end && round == shared.round;
      figures.acknowledged = receipt.expected;
      figures.lsn = receipt.lsn;
      figures.offset = receipt.offset;
      figures.durable = receipt.durable_offset;
      figures.receipt_ns = now_ns();
    }
  }
  if ((shared.eager || figures.ended) && shared.on_receipt) shared.on_receipt();
  if ((figures.ended || shared.rewind) && shared.tail) shared.tail->wake_all();
}

// Brings records into the ring, as many as there is room for; false: there are none, or no room.
bool Feeder::fill() {
  uint64_t acknowledged;
  {
    const std::lock_guard held(shared_->mutex);
    acknowledged = shared_->figures.acknowledged;
  }
  if (waiting_from_ == waiting_.size()) {
    waiting_.clear();
    waiting_from_ = 0;
    if (copy_) {
      const auto held = engine_->lock();
      const bool more = copy_->read(waiting_, 4 * kPieceBytes);
      if (!copy_->error().empty()) {
        end(copy_->error());
        return false;
      }
      double fraction = copy_->fraction();
      if (!more) {
        follower_ = copy_->take_follower();
        copy_.reset();
        fraction = 1;
      }
      const std::lock_guard also(shared_->mutex);
      shared_->figures.copying = copy_ != nullptr;
      shared_->figures.fraction = fraction;
    } else if (!follower_->read(waiting_, 4 * kPieceBytes)) {
      end("the replica was too slow: what it needs is not kept any more");
      return false;
    }
  }
  const size_t room = ring_.size() - static_cast<size_t>(filled_ - acknowledged);
  size_t left = std::min(room, waiting_.size() - waiting_from_);
  const bool moved = left > 0;
  while (left > 0) {
    const size_t at = filled_ % ring_.size(), some = std::min(left, ring_.size() - at);
    std::memcpy(ring_.data() + at, waiting_.data() + waiting_from_, some);
    waiting_from_ += some;
    filled_ += some;
    left -= some;
  }
  return moved;
}

bool Feeder::send(size_t length) {
  const size_t at = sent_ % ring_.size();
  LogPiece piece{
      .position = sent_, .length = static_cast<uint32_t>(length), .crc = 0, .flags = 0, .unused = 0};
  const bool inside = !options_.by_write || length <= options_.max_inline, asks = wants_receipt(length);
  if (asks) piece.flags = kWantsReceipt;
  std::string message(sizeof piece + (inside ? length : 0), '\0');
  if (inside && length > 0) std::memcpy(message.data() + sizeof piece, ring_.data() + at, length);
  const auto held = node_->lock();
  if (session_->is_over()) {
    end("the session has ended");
    return false;
  }
  if (!session_->may_stream()) return false;
  std::optional<uint32_t> summed;
  if (inside) {
    piece.flags |= kBytesFollow;
  } else {
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
    if (!session_->stream(ring_.data() + at, piece.length, lkey, region->addr + at, region->rkey, summed)) {
      return false;
    }
  }
  piece.crc = summed ? *summed : crc32c(0, ring_.data() + at, length);
  std::memcpy(message.data(), &piece, sizeof piece);
  static const uint32_t method = transport::method::of_name("kv.log");
  transport::Call* call = session_->call(method, std::as_bytes(std::span(message)));
  if (!call) return false;
  {
    const std::lock_guard also(shared_->mutex);
    sent_ += length;
    shared_->figures.sent = std::max(shared_->figures.sent, sent_);
    ++shared_->figures.messages;
    shared_->figures.writes += !inside;
  }
  transport::Session::then(*call, [shared = shared_, end = sent_, round = round_](transport::Call& answer) {
    take_receipt(*shared, answer, end, round);
  });
  sent_ns_ = now_ns();
  gap_ns_ = length > kLongPiece ? kLongGapNs : kGapNs;
  if (asks) {
    asked_ = sent_;
    asked_ns_ = sent_ns_;
  }
  return true;
}

bool Feeder::wants_receipt(size_t length) const {
  return length == 0 || shared_->eager || copy_ || sent_ + length - asked_ >= ring_.size() / 4 ||
         now_ns() - asked_ns_ >= kReceiptNs;
}

// Sleeps until the next piece is due, unless there is enough for it, and nobody has to wake us.
void Feeder::gather() {
  const uint64_t now = now_ns(), due = sent_ns_ + gap_ns_;
  if (shared_->eager || copy_ || now >= due || filled_ - sent_ + follower_->lag_bytes() >= kPieceBytes)
    return;
  std::this_thread::sleep_for(std::chrono::nanoseconds(due - now));
}

// When to ask for a receipt though there is nothing to send: at once, if somebody waits for one.
uint64_t Feeder::ping_ns() const {
  const bool eager = shared_->eager;
  if (sent_ > asked_) return eager ? 0 : sent_ns_ + kReceiptNs;
  return sent_ns_ + (eager ? kEagerPingNs : kPingNs);
}

void Feeder::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      const std::lock_guard held(shared_->mutex);
      if (shared_->figures.ended) break;
      if (shared_->rewind) {
        // A link broke between a WRITE and its message: what has arrived is not what was meant.
        shared_->rewind = false;
        sent_ = asked_ = shared_->figures.acknowledged;
        round_ = ++shared_->round;
        ++shared_->figures.repeats;
      }
    }
    const uint64_t wakes = tail_.wakes();
    bool moved = false;
    gather();
    if (filled_ - sent_ < kPieceBytes) moved = fill();
    if (sent_ < filled_) {
      const size_t at = sent_ % ring_.size();
      const size_t length = std::min({static_cast<size_t>(filled_ - sent_), kPieceBytes, ring_.size() - at});
      if (send(length)) continue;
    } else if (!moved && !copy_ && waiting_from_ == waiting_.size()) {
      const uint64_t ping = ping_ns();
      if (now_ns() >= ping && send(0)) continue;
      const uint64_t offset = follower_->offset();
      if (now_ns() < ping) tail_.wait_beyond(offset, ping, wakes);
      if (tail_.visible_offset() > offset) continue;
    }
    if (moved) continue;
    node_->linger();
    // There is no room, or no link: nothing changes within microseconds.
    if (node_->options().sleeps) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  end("it was stopped");
  {
    const std::lock_guard held(shared_->mutex);
    if (shared_->on_receipt) shared_->on_receipt();
  }
  const auto held = node_->lock();
  registration_.close();
}

}  // namespace verbena::kv
