#include "kv/migration/copy_sender.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/crc32c/crc32c.h"

namespace verbena::kv {

namespace {

using transport::Outcome;

constexpr std::align_val_t kPage{4096};

}  // namespace

CopySender::CopySender(const EnvelopeHeader& header, size_t windows, uint32_t piece_bytes, Fill fill,
                       std::shared_ptr<Hold> hold, Observer observer)
    : header_(header),
      piece_bytes_(piece_bytes),
      fill_(std::move(fill)),
      hold_(std::move(hold)),
      observer_(std::move(observer)),
      memory_(static_cast<std::byte*>(operator new(windows* piece_bytes, kPage))),
      pieces_(windows) {
  for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i].data = memory_ + i * piece_bytes;
}

CopySender::~CopySender() {
  hold_->from = Hold::kNothing;
  operator delete(memory_, kPage);
}

void CopySender::fill_next() {
  Piece& to = piece(next_);
  auto* const payload = reinterpret_cast<char*>(to.data) + sizeof(EnvelopeHeader);
  to.copy.to = {payload, piece_bytes_ - sizeof(EnvelopeHeader)};
  to.copy.used = 0;
  to.copy.holes.clear();
  last_ = fill_(to.copy);
  to.header = header_;
  to.header.kind = EnvelopeKind::segment;
  to.header.flags = last_ ? envelope::kLast : 0;
  to.header.segment = next_;
  to.header.offset = offset_;
  to.header.sequence += next_;
  to.header.length = static_cast<uint32_t>(to.copy.used);
  to.sealed = false;
  to.part = to.written = 0;
  offset_ += to.copy.used;
  ++next_;
}

// Computes the checksum of the piece and builds its notice. The checksums of the values in holes must be
// known.
void CopySender::seal(Piece& piece) {
  EnvelopeHeader& header = piece.header;
  envelope::seal(header, piece.copy.seal());
  std::memcpy(piece.data, &header, sizeof header);
  const PieceNotice notice_payload{static_cast<uint32_t>(header.segment % pieces_.size()), piece.bytes()};
  EnvelopeHeader notice = header;
  notice.kind = EnvelopeKind::notice;
  notice.flags = 0;
  notice.offset = 0;
  piece.notice =
      envelope::make(notice, {reinterpret_cast<const char*>(&notice_payload), sizeof notice_payload});
  piece.sealed = true;
}

void CopySender::fill_holes(Piece& piece) {
  piece.copy.fill_holes();
  if (!piece.sealed) seal(piece);
  piece.copy.holes.clear();
  piece.part = piece.written = 0;
  release_values();
}

void CopySender::release_values() {
  uint64_t from = Hold::kNothing;
  for (uint32_t segment = oldest_; segment != next_ && from == Hold::kNothing; ++segment) {
    if (!piece(segment).copy.holes.empty()) from = piece(segment).copy.held_from;
  }
  hold_->from.store(from, std::memory_order_release);
}

// The part of a copy that one session sends.
class CopySender::Run : transport::Writer {
 public:
  Run(CopySender& sender, transport::Node& node, transport::Session& session, transport::Registration& memory,
      uint64_t link, const std::function<bool()>& keep_going)
      : Writer(node, session, memory, keep_going), sender_(sender), link_(link), observed_(sender.oldest_) {}

  transport::BulkResult run() {
    try {
      while (!sender_.is_complete() && result_.outcome == Outcome::ok && !result_.interrupted) {
        bool moved = collect_answers();
        if (result_.outcome != Outcome::ok) break;
        moved |= fill();
        if (sender_.observer_) observe();
        if (send() || moved) continue;
        if (may_go_on()) wait();
      }
    } catch (...) {
      finish();
      throw;
    }
    finish();
    return result_;
  }

 private:
  // Fills one piece. Where WRITEs are copies it fills several, because a WRITE waits until the notices before
  // it have been received.
  bool fill() {
    const bool from_store = copies();
    const size_t most = from_store ? std::max<size_t>(1, sender_.pieces_.size() / 2) : 1;
    size_t filled = 0;
    while (filled < most && !sender_.last_ && sender_.next_ - sender_.oldest_ < sender_.pieces_.size()) {
      sender_.fill_next();
      ++filled;
      if (!from_store) sender_.fill_holes(sender_.piece(sender_.next_ - 1));
    }
    return filled > 0;
  }

  bool copies() {
    const auto held = node_.lock();
    return session_.link() && session_.link()->copies();
  }

  // Passes what this session sends to the observer, without the node's lock.
  void observe() {
    for (; observed_ != sender_.next_; ++observed_) {
      std::string wire;
      {
        const auto held = node_.lock();
        if (session_.link()) wire = session_.link()->port().name();
      }
      Piece& piece = sender_.piece(observed_);
      if (!piece.copy.holes.empty())
        piece.copy.fill_holes();  // for the observer only: the values are written from the store
      if (!piece.sealed) sender_.seal(piece);
      sender_.observer_(wire, text_of({piece.data, piece.bytes()}));
      sender_.observer_(wire, piece.notice);
    }
  }

  // Processes replies in order.
  bool collect_answers() {
    bool moved = false;
    while (sender_.oldest_ != sender_.next_) {
      Piece& piece = sender_.piece(sender_.oldest_);
      if (!piece.call || !piece.call->finished.load(std::memory_order_acquire)) break;
      const std::string_view answer = text_of(piece.call->answer());
      if (piece.call->outcome != Outcome::ok) {
        fail(piece.call->outcome, piece.call->status, std::string(answer));
        break;
      }
      if (!envelope::is_acceptance(std::as_bytes(std::span(answer)))) {
        sender_.refusal_ = answer;
        fail(Outcome::remote_failure, Status::success, "a piece was refused");
        break;
      }
      {
        const auto held = node_.lock();
        drop(piece.call);
      }
      sender_.acknowledged_ += piece.copy.used;
      ++sender_.pieces_acknowledged_;
      ++sender_.oldest_;
      moved = true;
    }
    if (moved) sender_.release_values();
    return moved;
  }

  // WRITEs and announces filled pieces. False: there are none, or the link does not accept them now.
  bool send() {
    bool moved = false;
    const auto held = node_.lock();
    if (session_.is_over()) fail(Outcome::session_failed, Status::success, "the session ended");
    if (is_link_lost()) {
      fail(Outcome::failed_status, Status::wr_flush_err, "the link broke before it was answered");
    }
    for (uint32_t segment = sender_.oldest_; segment != sender_.next_; ++segment) {
      Piece& piece = sender_.piece(segment);
      if (piece.call) continue;
      const uint64_t region = sender_.regions_[segment % sender_.regions_.size()];
      while (piece.part < piece.parts()) {
        if (result_.outcome != Outcome::ok || !write_some(piece, region)) return moved;
      }
    }
    for (uint32_t segment = sender_.oldest_; segment != sender_.next_; ++segment) {
      Piece& piece = sender_.piece(segment);
      if (piece.call) continue;
      piece.call = session_.call(transport::method::of_name(envelope::kNoticeMethod),
                                 std::as_bytes(std::span(piece.notice)));
      if (!piece.call) return moved;
      moved = true;
    }
    return moved;
  }

  // Writes from the next part of a piece. Values come first: their checksums are needed to seal the rest.
  bool write_some(Piece& piece, uint64_t region) {
    const size_t holes = piece.copy.holes.size();
    if (piece.part < holes) return write_value(piece, piece.copy.holes[piece.part], region);
    if (!piece.sealed) sender_.seal(piece);
    const size_t number = piece.part - holes;
    const auto end_of = [&](size_t hole) { return piece.copy.holes[hole].at + piece.copy.holes[hole].bytes; };
    const size_t begin = number == 0 ? 0 : sizeof(EnvelopeHeader) + end_of(number - 1);
    const size_t end = number == holes ? piece.bytes() : sizeof(EnvelopeHeader) + piece.copy.holes[number].at;
    if (begin + piece.written < end) {
      const size_t at = begin + piece.written;
      std::byte* const from = piece.data + at;
      const auto length = static_cast<uint32_t>(
          std::min(end - at, memory_.in_piece(static_cast<size_t>(from - sender_.memory_))));
      // No checksum is requested: it is known already, and a wire that computes one while it copies may
      // bypass the caches, from which the target reads the piece next.
      if (!write(region, at, from, length, nullptr)) return false;
      piece.written += length;
    }
    if (begin + piece.written == end) next_part(piece);
    return true;
  }

  bool write_value(Piece& piece, CopyPiece::Hole& hole, uint64_t region) {
    constexpr size_t kAtOnce = 64u << 10;  // fits into the cache
    transport::Registration& store = registered(hole.chunk);
    auto* const from = reinterpret_cast<std::byte*>(const_cast<char*>(hole.value)) + piece.written;
    const auto length =
        static_cast<uint32_t>(std::min({hole.bytes - piece.written, kAtOnce,
                                        store.in_piece(static_cast<size_t>(from - hole.chunk.data()))}));
    std::optional<uint32_t> copied;
    const uint64_t to = sizeof(EnvelopeHeader) + hole.at + piece.written;
    if (!write(region, to, store, from, length, piece.sealed ? nullptr : &copied)) return false;
    if (!piece.sealed) {
      const uint32_t sum = copied ? *copied : crc32c(0, from, length);
      hole.sum = piece.written == 0 ? sum : combine_crc32c(hole.sum, sum, length);
    }
    piece.written += length;
    if (piece.written == hole.bytes) next_part(piece);
    return true;
  }

  static void next_part(Piece& piece) {
    ++piece.part;
    piece.written = 0;
  }

  transport::Registration& registered(std::span<std::byte> chunk) {
    return stores_.try_emplace(chunk.data(), chunk.data(), chunk.size(), 0, node_.options().max_region_bytes)
        .first->second;
  }

  bool is_link_lost() const {
    const uint64_t link = streamed_on_ != 0 ? streamed_on_ : link_;
    return link != 0 && (!session_.link() || session_.links() != link);
  }

  void wait() {
    const Piece& oldest = sender_.piece(sender_.oldest_);
    if (!oldest.call) return node_.drive_or_sleep();
    node_.wait(*oldest.call, now_ns() + kCheckEveryNs);
    if (!oldest.call->finished.load(std::memory_order_acquire)) copy_unacknowledged();
  }

  // The target is slow: copies the values of unacknowledged pieces, so that the store need not keep them.
  void copy_unacknowledged() {
    {
      const auto held = node_.lock();
      if (!session_.link() || !session_.link()->drained()) return;  // a WRITE may still read the values
    }
    for (uint32_t segment = sender_.oldest_; segment != sender_.next_; ++segment) {
      Piece& piece = sender_.piece(segment);
      if (!piece.copy.holes.empty() && piece.call) sender_.fill_holes(piece);
    }
  }

  void finish() {
    {
      const auto held = node_.lock();
      for (Piece& piece : sender_.pieces_) drop(piece.call);
    }
    release(sender_.is_complete());
    {
      const auto held = node_.lock();
      stores_.clear();
    }
    for (uint32_t segment = sender_.oldest_; segment != sender_.next_; ++segment) {
      sender_.fill_holes(sender_.piece(segment));
    }
    sender_.release_values();
  }

  CopySender& sender_;
  const uint64_t link_;
  uint32_t observed_;
  std::map<std::byte*, transport::Registration> stores_;  // store memory that values are written from
};

transport::BulkResult CopySender::run(transport::Node& node, transport::Session& session, uint64_t link,
                                      std::vector<uint64_t> regions,
                                      const std::function<bool()>& keep_going) {
  refusal_.clear();
  regions_ = std::move(regions);
  transport::Registration memory(memory_, pieces_.size() * piece_bytes_, 0, node.options().max_region_bytes);
  const transport::BulkResult result = Run(*this, node, session, memory, link, keep_going).run();
  const auto held = node.lock();
  memory.close();
  return result;
}

}  // namespace verbena::kv
