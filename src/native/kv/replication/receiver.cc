#include "kv/replication/receiver.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c.h"
#include "util/error.h"

namespace verbena::kv {

// The node keeps it for good; the receiver may be gone.
class ReplicationReceiver::Door : public transport::Handler {
 public:
  explicit Door(std::weak_ptr<ReplicationReceiver> receiver) : receiver_(std::move(receiver)) {}
  void handle(const transport::Request& request) override {
    const auto receiver = receiver_.lock();
    if (receiver && request.session.id() == receiver->session_) return receiver->take(request);
    request.session.fail(request.call, transport::Outcome::remote_failure, "this node does not follow you");
  }

 private:
  const std::weak_ptr<ReplicationReceiver> receiver_;
};

std::shared_ptr<ReplicationReceiver> ReplicationReceiver::make(Engine& engine, EventLoop& loop,
                                                               std::shared_ptr<transport::Node> node,
                                                               uint64_t session, std::span<std::byte> ring,
                                                               LogApplier& applier) {
  std::shared_ptr<ReplicationReceiver> receiver(
      new ReplicationReceiver(engine, loop, node, session, ring, applier));
  node->handle(transport::method::of_name("kv.log"), std::make_shared<Door>(receiver));
  return receiver;
}

void ReplicationReceiver::take(const transport::Request& request) {
  Message message{.header = {}, .call = request.call, .piece = {}};
  if (request.payload.size() < sizeof message.header) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, "the message is too short");
  }
  std::memcpy(&message.header, request.payload.data(), sizeof message.header);
  const auto rest = request.payload.subspan(sizeof message.header);
  LogPiece piece{};
  const bool inside = message.header.flags & kPieceFollows;
  if (rest.size() >= sizeof piece) std::memcpy(&piece, rest.data(), sizeof piece);
  if (message.header.flags > (kPieceFollows | kWantsReceipt) ||
      (inside ? rest.size() < sizeof piece || rest.size() != piece_bytes(piece.length) : !rest.empty())) {
    return request.session.fail(request.call, transport::Outcome::remote_failure,
                                "the message makes no sense");
  }
  message.piece.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  const std::lock_guard held(mutex_);
  counters_.heard_ns = now_ns();
  queue_.push_back(std::move(message));
  post();
}

void ReplicationReceiver::post() {
  if (posted_ || !begun_) return;
  posted_ = true;
  loop_.post([kept = shared_from_this()] { kept->work(); });
}

void ReplicationReceiver::begin(bool full, uint64_t offset, uint64_t place_key) {
  if (full) {
    engine_.loading = true;
    engine_.refresh_time();
    clear();
    applier_->restart();
  }
  applier_->set_offset(offset);
  place_key_ = place_key;
  if (turn_ == 0)
    turn_ = loop_.add_hook(EventLoop::Moment::before, [this](uint64_t now) { return look(now); });
  const std::lock_guard held(mutex_);
  begun_ = counters_.begun = true;
  counters_.complete = !full;
  counters_.lsn = applier_->lsn();
  counters_.offset = offset;
  if (!queue_.empty()) post();
}

void ReplicationReceiver::clear() {
  const std::string_view effect[] = {"FLUSHALL"};
  for (uint32_t i = 0; i < engine_.keyspace.databases(); ++i) {
    if (!engine_.keyspace.exists(i)) continue;
    engine_.keyspace.mark_all_watchers_dirty(i);
    engine_.keyspace.database(i).clear();
  }
  engine_.keyspace.log(0, effect);
  if (engine_.journal()) engine_.journal()->boundary();
}

void ReplicationReceiver::close() {
  closed_ = true;
  if (turn_ != 0) loop_.remove_hook(std::exchange(turn_, 0));
  loop_.set_batch_scheduling(false);
  const std::lock_guard held(mutex_);
  queue_.clear();
}

ReplicationReceiverCounters ReplicationReceiver::counters() const {
  const std::lock_guard held(mutex_);
  ReplicationReceiverCounters counters = counters_;
  counters.lags.pass(unix_ns());
  return counters;
}

bool ReplicationReceiver::take_piece(std::string_view bytes, bool written) {
  LogPiece piece;
  std::memcpy(&piece, bytes.data(), sizeof piece);
  const uint64_t position = next_piece(expected_, ring_.size());
  if (piece.mark != mark_ + position) return false;  // it is not there yet, or not any more
  if (piece.length == 0 || piece.length > bytes.size() - sizeof piece) return false;
  bytes = bytes.substr(sizeof piece, piece.length);
  // One that is being written is whole at the next look, one that was damaged when it is written again.
  if (piece_crc(piece, bytes.data()) != piece.crc) return false;
  applier_->apply(bytes);
  if (piece.told_ns != 0) told_.push_back(piece.told_ns);
  expected_ = position + piece_bytes(piece.length);
  const std::lock_guard held(mutex_);
  ++counters_.pieces;
  counters_.bytes += bytes.size();
  if (written) counters_.written += bytes.size();
  counters_.heard_ns = now_ns();
  return true;
}

bool ReplicationReceiver::look_until(uint64_t deadline) {
  const std::string_view ring(reinterpret_cast<const char*>(ring_.data()), ring_.size());
  do {
    const uint64_t position = next_piece(expected_, ring.size());
    if (!take_piece(ring.substr(position % ring.size()), true)) return true;
  } while (now_ns() < deadline);
  return false;
}

uint64_t ReplicationReceiver::look(uint64_t now) {
  if (closed_ || !why_.empty()) return EventLoop::kNever;
  const uint64_t before = expected_;
  bool all = true;
  try {
    all = look_until(now + kBudgetNs);
  } catch (const Error& error) {
    why_ = error.detail();
  }
  if (expected_ != before || !why_.empty()) settle();
  hurries_ = now - std::max(loop_.last_command_ns(), pressed_ns_) <= kQuietNs;
  loop_.set_batch_scheduling(!hurries_ && now < awake_until_);
  tell_place();
  if (!all) return now;
  return now < awake_until_ ? now + (hurries_ ? kHurriedLookNs : kLookNs) : EventLoop::kNever;
}

// While it hurries, and then once. If it cannot be done now, the next look is soon.
void ReplicationReceiver::tell_place() {
  const LogPlace place{.expected = expected_, .hurries = hurries_}, &told = told_place_;
  const bool is_news = hurries_ ? place.expected != told.expected || !told.hurries : told.hurries != 0;
  if (place_key_ == 0 || !is_news) return;
  const auto held = node_->try_lock();
  const auto session = held.owns_lock() ? node_->find_session(session_) : nullptr;
  // Beyond this host nobody has to give way.
  if (!session || !session->link() || session->link()->port().name() != "shm") return;
  if (session->hint(place_key_, std::as_bytes(std::span(&place, 1)))) told_place_ = place;
}

LogReceipt ReplicationReceiver::receipt() {
  if (const Journal* log = engine_.log()) {
    const uint64_t position = log->position(), durable = log->durable();
    if (undurable_.empty() || undurable_.back().second != applier_->offset()) {
      undurable_.emplace_back(position, applier_->offset());
    }
    while (!undurable_.empty() && undurable_.front().first <= durable) {
      durable_offset_ = undurable_.front().second;
      undurable_.pop_front();
    }
  }
  return {expected_, applier_->lsn(), applier_->offset(), durable_offset_};
}

// What has been applied counts.
void ReplicationReceiver::settle() {
  if (engine_.loading && applier_->is_complete()) {
    engine_.loading = false;
    engine_.refresh_time();
  }
  engine_.commit();
  const uint64_t now = unix_ns();
  const std::lock_guard held(mutex_);
  counters_.lags.pass(now);
  for (const uint64_t told : told_) counters_.lags.note(now - std::min(told, now));
  told_.clear();
  counters_.lsn = applier_->lsn();
  counters_.offset = applier_->offset();
  counters_.complete |= applier_->is_complete();
  if (counters_.error.empty()) counters_.error = why_;
}

void ReplicationReceiver::work() {
  std::vector<Message> messages;
  {
    const std::lock_guard held(mutex_);
    posted_ = false;
    messages.swap(queue_);
  }
  if (closed_ || messages.empty()) return;
  const uint64_t began = now_ns(), deadline = began + kBudgetNs;
  awake_until_ = began + kAwakeNs;
  if (began - woken_ns_ < kSpeakNs / 2) pressed_ns_ = began;  // somebody waits for the receipts
  woken_ns_ = began;
  bool is_wanted = false;
  size_t done = 0, missed = 0;  // announced, but not there
  for (; done < messages.size(); ++done) {
    const Message& message = messages[done];
    try {
      if (why_.empty()) {
        if (!look_until(deadline)) break;
        if (!message.piece.empty()) take_piece(message.piece, false);
      }
    } catch (const Error& error) {
      why_ = error.detail();
    }
    missed += expected_ < message.header.end;
    is_wanted |= !why_.empty() || missed > 0 || (message.header.flags & kWantsReceipt) != 0;
    owed_.push_back(message.call);
  }
  settle();
  {
    const std::lock_guard held(mutex_);
    counters_.damaged += missed;
    queue_.insert(queue_.begin(), std::make_move_iterator(messages.begin() + static_cast<ptrdiff_t>(done)),
                  std::make_move_iterator(messages.end()));
    if (!queue_.empty()) post();
  }
  if (!is_wanted && owed_.size() < kMostOwed) return;
  const LogReceipt last = receipt();
  // Whoever holds the node's lock may be waiting for the GIL.
  if (engine_.handler()) engine_.handler()->release_gil();
  const auto calls = std::exchange(owed_, {});
  const auto held = node_->lock();
  const auto session = node_->find_session(session_);
  if (!session || session->is_over()) return;
  for (const uint64_t call : calls) {
    if (why_.empty()) {
      session->reply(call, std::as_bytes(std::span(&last, 1)));
    } else {
      session->fail(call, transport::Outcome::remote_failure, why_);
    }
  }
}

}  // namespace verbena::kv
