#include "kv/carrier.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "util/clock.h"

namespace verbena::kv {

namespace {

using transport::Outcome;

constexpr std::align_val_t kPage{4096};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Carrier::Carrier(const EnvelopeHeader& header, std::vector<uint64_t> regions, uint32_t piece_bytes, Fill fill,
                 Tap tap)
    : header_(header),
      regions_(std::move(regions)),
      piece_bytes_(piece_bytes),
      fill_(std::move(fill)),
      tap_(std::move(tap)),
      memory_(static_cast<std::byte*>(operator new(regions_.size() * piece_bytes, kPage))),
      pieces_(regions_.size()) {
  for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i].data = memory_ + i * piece_bytes;
}

Carrier::~Carrier() { operator delete(memory_, kPage); }

void Carrier::fill_next() {
  Piece& to = piece(next_);
  auto* const payload = reinterpret_cast<char*>(to.data) + sizeof(EnvelopeHeader);
  const Filled filled = fill_({payload, piece_bytes_ - sizeof(EnvelopeHeader)});
  EnvelopeHeader header = header_;
  header.kind = envelope::kSegment;
  header.flags = filled.last ? envelope::kLast : 0;
  header.segment = next_;
  header.offset = offset_;
  header.sequence += next_;
  header.length = static_cast<uint32_t>(filled.bytes);
  envelope::seal(header, filled.sum);
  std::memcpy(to.data, &header, sizeof header);
  to.bytes = static_cast<uint32_t>(sizeof header + filled.bytes);
  to.written = 0;
  const LandedPiece landed{static_cast<uint32_t>(next_ % pieces_.size()), to.bytes};
  header.kind = envelope::kLanded;
  header.flags = 0;
  header.offset = 0;
  to.notice = envelope::make(header, {reinterpret_cast<const char*>(&landed), sizeof landed});
  offset_ += filled.bytes;
  last_ = filled.last;
  ++next_;
}

// One session's share.
class Carrier::Run : transport::Writer {
 public:
  Run(Carrier& carrier, transport::Node& node, transport::Session& session, transport::Registration& memory,
      uint64_t link, const std::function<bool()>& keep_going)
      : Writer(node, session, memory, keep_going), carrier_(carrier), link_(link), shown_(carrier.oldest_) {}

  transport::BulkResult run() {
    try {
      while (!carrier_.is_complete() && result_.outcome == Outcome::ok && !result_.interrupted) {
        bool moved = reap();
        if (result_.outcome != Outcome::ok) break;
        if (!carrier_.last_ && carrier_.next_ - carrier_.oldest_ < carrier_.pieces_.size()) {
          carrier_.fill_next();
          moved = true;
        }
        if (carrier_.tap_) show();
        if (send() || moved) continue;
        if (may_go_on()) rest();
      }
    } catch (...) {
      settle();
      throw;
    }
    settle();
    return result_;
  }

 private:
  // Without the lock: what goes by this session.
  void show() {
    for (; shown_ != carrier_.next_; ++shown_) {
      std::string wire;
      {
        const auto held = node_.lock();
        if (session_.link()) wire = session_.link()->port().name();
      }
      const Piece& piece = carrier_.piece(shown_);
      carrier_.tap_(wire, text_of({piece.data, piece.bytes}));
      carrier_.tap_(wire, piece.notice);
    }
  }

  // Answers, in order.
  bool reap() {
    bool moved = false;
    while (carrier_.oldest_ != carrier_.next_) {
      Piece& piece = carrier_.piece(carrier_.oldest_);
      if (!piece.call || !piece.call->finished.load(std::memory_order_acquire)) break;
      const std::string_view answer = text_of(piece.call->answer());
      if (piece.call->outcome != Outcome::ok) {
        fail(piece.call->outcome, piece.call->status, std::string(answer));
        break;
      }
      if (!envelope::is_consent(std::as_bytes(std::span(answer)))) {
        carrier_.refusal_ = answer;
        fail(Outcome::remote_failure, Status::success, "a piece was refused");
        break;
      }
      {
        const auto held = node_.lock();
        drop(piece.call);
      }
      carrier_.acknowledged_ += piece.bytes - sizeof(EnvelopeHeader);
      ++carrier_.pieces_acknowledged_;
      ++carrier_.oldest_;
      moved = true;
    }
    return moved;
  }

  // WRITEs and announces what has been filled; false: nothing, or nothing now.
  bool send() {
    bool moved = false;
    const auto held = node_.lock();
    if (session_.is_over()) fail(Outcome::session_failed, Status::success, "the session ended");
    if (is_lost()) {
      fail(Outcome::failed_status, Status::wr_flush_err, "the link broke before it was answered");
    }
    for (uint32_t segment = carrier_.oldest_; segment != carrier_.next_; ++segment) {
      Piece& piece = carrier_.piece(segment);
      if (piece.call) continue;
      const uint64_t region = carrier_.regions_[segment % carrier_.regions_.size()];
      while (piece.written < piece.bytes) {
        std::byte* const from = piece.data + piece.written;
        const auto length = static_cast<uint32_t>(std::min<uint64_t>(
            piece.bytes - piece.written, memory_.in_piece(static_cast<uint64_t>(from - carrier_.memory_))));
        // It has been summed. A wire that sums what it copies may also spare its caches, where the target
        // looks.
        if (result_.outcome != Outcome::ok || !write(region, piece.written, from, length, nullptr)) {
          return moved;
        }
        piece.written += length;
      }
      piece.call =
          session_.call(transport::method::of_name("shards.landed"), std::as_bytes(std::span(piece.notice)));
      if (!piece.call) return moved;
      moved = true;
    }
    return moved;
  }

  bool is_lost() const {
    const uint64_t link = streamed_on_ != 0 ? streamed_on_ : link_;
    return link != 0 && (!session_.link() || session_.links() != link);
  }

  void rest() {
    const Piece& oldest = carrier_.piece(carrier_.oldest_);
    if (!oldest.call) return node_.linger();
    node_.wait(*oldest.call, now_ns() + kAskEveryNs);
  }

  void settle() {
    {
      const auto held = node_.lock();
      for (Piece& piece : carrier_.pieces_) {
        drop(piece.call);
        piece.written = 0;
      }
    }
    release(carrier_.is_complete());
  }

  Carrier& carrier_;
  const uint64_t link_;
  uint32_t shown_;
};

transport::BulkResult Carrier::run(transport::Node& node, transport::Session& session, uint64_t link,
                                   const std::function<bool()>& keep_going) {
  refusal_.clear();
  transport::Registration memory(memory_, regions_.size() * piece_bytes_, 0, node.options().max_region_bytes);
  const transport::BulkResult result = Run(*this, node, session, memory, link, keep_going).run();
  const auto held = node.lock();
  memory.close();
  return result;
}

}  // namespace verbena::kv
