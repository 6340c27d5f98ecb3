#include "kv/receiver.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/crc32c.h"
#include "util/error.h"

namespace verbena::kv {

// The node keeps it for good; the receiver may be gone.
class Receiver::Door : public transport::Handler {
 public:
  explicit Door(std::weak_ptr<Receiver> receiver) : receiver_(std::move(receiver)) {}
  void handle(const transport::Request& request) override {
    const auto receiver = receiver_.lock();
    if (receiver && request.session.id() == receiver->session_) return receiver->take(request);
    request.session.fail(request.call, transport::Outcome::remote_failure, "this node does not follow you");
  }

 private:
  const std::weak_ptr<Receiver> receiver_;
};

std::shared_ptr<Receiver> Receiver::make(Engine& engine, Loop& loop, std::shared_ptr<transport::Node> node,
                                         uint64_t session, std::span<std::byte> ring, Applier& applier) {
  std::shared_ptr<Receiver> receiver(new Receiver(engine, loop, node, session, ring, applier));
  node->handle(transport::method::of_name("kv.log"), std::make_shared<Door>(receiver));
  return receiver;
}

void Receiver::take(const transport::Request& request) {
  Piece piece{.header = {}, .call = request.call, .bytes = {}};
  if (request.payload.size() < sizeof piece.header) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, "the piece is too short");
  }
  std::memcpy(&piece.header, request.payload.data(), sizeof piece.header);
  const auto rest = request.payload.subspan(sizeof piece.header);
  const bool inside = piece.header.flags & kBytesFollow,
             known = piece.header.flags <= (kBytesFollow | kWantsReceipt);
  const size_t at = ring_.empty() ? 0 : piece.header.position % ring_.size();
  if (!known || (inside ? rest.size() != piece.header.length
                        : !rest.empty() || piece.header.length > ring_.size() - at)) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, "the piece makes no sense");
  }
  if (inside) piece.bytes.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  const std::lock_guard held(mutex_);
  figures_.heard_ns = now_ns();
  queue_.push_back(std::move(piece));
  post();
}

void Receiver::post() {
  if (posted_ || !begun_) return;
  posted_ = true;
  loop_.post([kept = shared_from_this()] { kept->work(); });
}

void Receiver::begin(bool full, uint64_t offset) {
  if (full) {
    engine_.loading = true;
    engine_.refresh_time();
    clear();
    applier_->restart();
  }
  applier_->set_offset(offset);
  const std::lock_guard held(mutex_);
  begun_ = figures_.begun = true;
  figures_.complete = !full;
  figures_.lsn = applier_->lsn();
  figures_.offset = offset;
  if (!queue_.empty()) post();
}

void Receiver::clear() {
  const std::string_view effect[] = {"FLUSHALL"};
  for (uint32_t i = 0; i < engine_.keyspace.databases(); ++i) {
    if (!engine_.keyspace.exists(i)) continue;
    engine_.keyspace.disturb_all(i);
    engine_.keyspace.database(i).clear();
  }
  engine_.keyspace.log(0, effect);
  if (engine_.journal()) engine_.journal()->boundary();
}

void Receiver::close() {
  closed_ = true;
  const std::lock_guard held(mutex_);
  queue_.clear();
}

ReceiverFigures Receiver::figures() const {
  const std::lock_guard held(mutex_);
  return figures_;
}

bool Receiver::take_piece(const Piece& piece) {
  // After one that was not right, later ones are sent again, too.
  if (piece.header.position != expected_) return false;
  if (piece.header.length == 0) return true;
  const bool inside = piece.header.flags & kBytesFollow;
  std::string_view bytes = piece.bytes;
  if (!inside) {
    bytes = {reinterpret_cast<const char*>(ring_.data()) + expected_ % ring_.size(), piece.header.length};
  }
  if (crc32c(0, bytes.data(), bytes.size()) != piece.header.crc) {
    const std::lock_guard held(mutex_);
    ++figures_.damaged;
    return false;
  }
  applier_->apply(bytes);
  expected_ += bytes.size();
  const std::lock_guard held(mutex_);
  ++figures_.pieces;
  figures_.bytes += bytes.size();
  if (!inside) figures_.written += bytes.size();
  return true;
}

LogReceipt Receiver::receipt() {
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

void Receiver::work() {
  constexpr uint64_t kBudgetNs = 2'000'000;
  std::vector<Piece> pieces;
  {
    const std::lock_guard held(mutex_);
    posted_ = false;
    pieces.swap(queue_);
  }
  if (closed_ || pieces.empty()) return;
  const uint64_t deadline = now_ns() + kBudgetNs;
  std::string why;
  bool is_wanted = false;
  size_t done = 0;
  for (; done < pieces.size() && (done == 0 || now_ns() < deadline); ++done) {
    const Piece& piece = pieces[done];
    try {
      is_wanted |= !why.empty() || !take_piece(piece) || (piece.header.flags & kWantsReceipt) != 0;
    } catch (const Error& error) {
      why = error.detail();
      is_wanted = true;
    }
    owed_.push_back(piece.call);
  }
  if (engine_.loading && applier_->is_complete()) {
    engine_.loading = false;
    engine_.refresh_time();
  }
  engine_.commit();
  const LogReceipt last = receipt();
  {
    const std::lock_guard held(mutex_);
    figures_.lsn = last.lsn;
    figures_.offset = last.offset;
    figures_.complete |= applier_->is_complete();
    if (figures_.error.empty()) figures_.error = why;
    queue_.insert(queue_.begin(), std::make_move_iterator(pieces.begin() + static_cast<ptrdiff_t>(done)),
                  std::make_move_iterator(pieces.end()));
    if (!queue_.empty()) post();
  }
  if (!is_wanted && owed_.size() < kMostOwed) return;
  // Whoever holds the node's lock may be waiting for the GIL.
  if (engine_.program()) engine_.program()->rest();
  const auto calls = std::exchange(owed_, {});
  const auto held = node_->lock();
  const auto session = node_->find_session(session_);
  if (!session || session->is_over()) return;
  for (const uint64_t call : calls) {
    if (why.empty()) {
      session->reply(call, std::as_bytes(std::span(&last, 1)));
    } else {
      session->fail(call, transport::Outcome::remote_failure, why);
    }
  }
}

}  // namespace verbena::kv
