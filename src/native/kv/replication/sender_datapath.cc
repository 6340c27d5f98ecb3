// The data path of a replication sender: puts records as pieces into the ring, and sends the pieces.
#include <algorithm>
#include <cstring>

#include "kv/replication/sender.h"
#include "util/clock.h"

namespace verbena::kv {

using transport::Outcome;

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
  LogPiece piece{.ring_tag = options_.ring_tag + position,
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

}  // namespace verbena::kv
