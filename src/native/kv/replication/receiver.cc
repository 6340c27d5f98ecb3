#include "kv/replication/receiver.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"

namespace verbena::kv {

// The node keeps handlers for its lifetime; the receiver may be destroyed earlier.
class ReplicationReceiver::LogHandler : public transport::Handler {
 public:
  explicit LogHandler(std::weak_ptr<ReplicationReceiver> receiver) : receiver_(std::move(receiver)) {}
  void handle(const transport::Request& request) override {
    const auto receiver = receiver_.lock();
    if (receiver && request.session.id() == receiver->session_) return receiver->take(request);
    request.session.fail(request.call, transport::Outcome::remote_failure,
                         "this node does not replicate from this session");
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
  node->handle(transport::method::of_name(kLogMethod), std::make_shared<LogHandler>(receiver));
  return receiver;
}

void ReplicationReceiver::take(const transport::Request& request) {
  Message message{.header = {}, .call = request.call, .piece = {}};
  if (const char* const why = read_log_message(request.payload, message.header)) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, why);
  }
  const auto rest = request.payload.subspan(sizeof message.header);
  message.piece.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  const std::lock_guard held(mutex_);
  counters_.received_ns = now_ns();
  queue_.push_back(std::move(message));
  post();
}

void ReplicationReceiver::post() {
  if (posted_ || !begun_) return;
  posted_ = true;
  loop_.post([kept = shared_from_this()] { kept->work(); });
}

void ReplicationReceiver::begin(bool full, uint64_t offset, uint64_t position_key) {
  if (full) {
    engine_.loading = true;
    engine_.refresh_time();
    clear();
    applier_->restart();
  }
  applier_->set_offset(offset);
  position_key_ = position_key;
  if (poll_turn_ == 0)
    poll_turn_ = loop_.add_hook(EventLoop::Moment::before, [this](uint64_t now) { return poll(now); });
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
  if (engine_.journal()) engine_.journal()->end_command();
}

void ReplicationReceiver::close() {
  closed_ = true;
  if (poll_turn_ != 0) loop_.remove_hook(std::exchange(poll_turn_, 0));
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

bool ReplicationReceiver::apply_piece(std::string_view bytes, bool written) {
  const uint64_t position = next_piece(expected_, ring_.size());
  const auto piece = read_piece(bytes, ring_tag_, position, copy_);
  if (!piece) return false;
  bytes = std::string_view(copy_).substr(0, piece->length);
  applier_->apply(bytes);
  if (piece->visible_ns != 0) applied_visible_ns_.push_back(piece->visible_ns);
  expected_ = position + piece_bytes(piece->length);
  const std::lock_guard held(mutex_);
  ++counters_.pieces;
  counters_.bytes += bytes.size();
  if (written) counters_.written += bytes.size();
  counters_.received_ns = now_ns();
  return true;
}

bool ReplicationReceiver::poll_until(uint64_t deadline) {
  const std::string_view ring(reinterpret_cast<const char*>(ring_.data()), ring_.size());
  do {
    const uint64_t position = next_piece(expected_, ring.size());
    if (!apply_piece(ring.substr(position % ring.size()), true)) return true;
  } while (now_ns() < deadline);
  return false;
}

// Calls the function, unless the stream is invalid. An exception makes it invalid: the link ends with this
// reason, and the next one begins with a base copy, because the last record may be applied in part.
template <typename Function>
void ReplicationReceiver::or_fault(Function function) {
  if (!fault_.empty()) return;
  try {
    function();
  } catch (const Error& error) {
    fault_ = error.detail();
  } catch (const std::bad_alloc&) {
    fault_ = "not enough memory";
  } catch (const std::exception& error) {
    fault_ = error.what();
  }
  if (!fault_.empty()) std::string().swap(copy_);
}

uint64_t ReplicationReceiver::poll(uint64_t now) {
  if (closed_ || !fault_.empty()) return EventLoop::kNever;
  const uint64_t before = expected_;
  bool all = true;
  or_fault([&] { all = poll_until(now + kBudgetNs); });
  if (expected_ != before || !fault_.empty()) commit_applied();
  active_ = now - std::max(loop_.last_command_ns(), frequent_messages_ns_) <= kActiveNs;
  loop_.set_batch_scheduling(!active_ && now < poll_until_ns_);
  publish_position();
  if (!all) return now;
  return now < poll_until_ns_ ? now + (active_ ? kActivePollIntervalNs : kPollIntervalNs) : EventLoop::kNever;
}

// Publishes the position while active, and once more when activity ends. If the node is busy, the next poll
// tries again.
void ReplicationReceiver::publish_position() {
  const ReplicaPosition position{.expected = expected_, .active = active_}, &published = published_position_;
  const bool is_changed =
      active_ ? position.expected != published.expected || !published.active : published.active != 0;
  if (position_key_ == 0 || !is_changed) return;
  const auto held = node_->try_lock();
  const auto session = held.owns_lock() ? node_->find_session(session_) : nullptr;
  // The primary yields the processor only to a replica on its own host.
  if (!session || !session->link() || session->link()->port().name() != "shm") return;
  if (session->hint(position_key_, std::as_bytes(std::span(&position, 1)))) published_position_ = position;
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

// Commits what has been applied and updates the counters.
void ReplicationReceiver::commit_applied() {
  if (engine_.loading && applier_->is_complete()) {
    engine_.loading = false;
    engine_.refresh_time();
  }
  engine_.commit();
  const uint64_t now = unix_ns();
  const std::lock_guard held(mutex_);
  counters_.lags.pass(now);
  for (const uint64_t published : applied_visible_ns_) counters_.lags.note(now - std::min(published, now));
  applied_visible_ns_.clear();
  counters_.lsn = applier_->lsn();
  counters_.offset = applier_->offset();
  counters_.complete |= applier_->is_complete();
  if (counters_.error.empty()) counters_.error = fault_;
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
  poll_until_ns_ = began + kPollNs;
  if (began - last_message_ns_ < kMessageIntervalNs / 2)
    frequent_messages_ns_ = began;  // the primary's clients wait for receipts
  last_message_ns_ = began;
  bool is_wanted = false;
  size_t done = 0, missed = 0;  // pieces that were announced but not found
  for (; done < messages.size(); ++done) {
    const Message& message = messages[done];
    bool in_time = true;
    or_fault([&] {
      in_time = poll_until(deadline);
      if (in_time && !message.piece.empty()) apply_piece(message.piece, false);
    });
    if (!in_time) break;
    missed += expected_ < message.header.end;
    is_wanted |= !fault_.empty() || missed > 0 || (message.header.flags & kWantsReceipt) != 0;
    unanswered_.push_back(message.call);
  }
  commit_applied();
  {
    const std::lock_guard held(mutex_);
    counters_.damaged += missed;
    queue_.insert(queue_.begin(), std::make_move_iterator(messages.begin() + static_cast<ptrdiff_t>(done)),
                  std::make_move_iterator(messages.end()));
    if (!queue_.empty()) post();
  }
  if (!is_wanted && unanswered_.size() < kMaxUnanswered) return;
  const LogReceipt last = receipt();
  // The thread that holds the node's lock may be waiting for the GIL.
  if (engine_.handler()) engine_.handler()->release_gil();
  const auto calls = std::exchange(unanswered_, {});
  const auto held = node_->lock();
  const auto session = node_->find_session(session_);
  if (!session || session->is_over()) return;
  for (const uint64_t call : calls) {
    if (fault_.empty()) {
      session->reply(call, std::as_bytes(std::span(&last, 1)));
    } else {
      session->fail(call, transport::Outcome::remote_failure, fault_);
    }
  }
}

}  // namespace verbena::kv
