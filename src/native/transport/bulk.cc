#include "transport/bulk.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "util/clock.h"
#include "util/crc32c.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kMostAttempts = 8;           // per fragment whose contents did not match
constexpr uint64_t kAskEveryNs = 50'000'000;    // whether to keep going
constexpr uint64_t kSettleNs = 10'000'000'000;  // for a wire to let go of the memory

// What put and get share: fragments in order, a window over them, and the way out.
class Transfer {
 public:
  Transfer(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
           Registration& memory, std::atomic<uint64_t>& acknowledged, const std::function<bool()>& keep_going)
      : node_(node),
        session_(session),
        target_(target),
        options_(options),
        memory_(memory),
        acknowledged_(acknowledged),
        keep_going_(keep_going) {}
  virtual ~Transfer() = default;

  BulkResult run() {
    while (acknowledged_.load(std::memory_order_relaxed) < target_.length && result_.outcome == Outcome::ok) {
      const bool moved = advance();
      if (result_.outcome != Outcome::ok) break;
      if (!moved) {
        if (!may_go_on()) break;
        rest();
      }
    }
    settle();
    return result_;
  }

 protected:
  struct Fragment {
    uint64_t offset = 0;
    uint32_t length = 0, crc = 0, attempts = 0;
    bool is_summed = false;
    bool is_written = false;  // and nobody is asked about it
    Call* check = nullptr;    // the peer's word on the contents
    Call* read = nullptr;
  };

  // With the lock. Begins a fragment; false: not now.
  virtual bool begin(Fragment& fragment) = 0;
  // Both its calls have finished: are the contents right?
  virtual bool is_right(const Fragment& fragment, uint32_t answer) = 0;
  // Before begin(), without the lock.
  virtual void prepare(Fragment&) {}
  // There is nothing to do but to wait.
  virtual void rest() { node_.linger(); }
  virtual void hear(const Call&) {}
  // With the lock. The link it depends on is gone.
  virtual bool is_lost() const { return false; }

  // With the lock. The WRITE of a fragment; false: not now, or it has failed.
  bool write(const Fragment& fragment, std::optional<uint32_t>& copied) {
    if (!session_.may_stream()) return false;
    const RemoteRegion* region = session_.region(target_.region);
    if (!region) return false;
    if (region->refused != Outcome::ok) {
      fail(region->refused, Status::success, "the region was revoked, or is not for this session");
      return false;
    }
    if (!region->known) return false;
    if (!(region->access & access::remote_write)) {
      fail(Outcome::denied, Status::success, "the region is read-only");
      return false;
    }
    if (target_.offset > region->length || target_.length > region->length - target_.offset) {
      fail(Outcome::out_of_range, Status::success, "the range leaves the region");
      return false;
    }
    uint32_t lkey;
    try {
      lkey = node_.registering([&] { return memory_.lkey(session_.link()->port(), at(fragment)); });
    } catch (const std::exception& error) {
      fail(Outcome::remote_failure, Status::success, error.what());
      return false;
    }
    streamed_on_ = session_.links();
    const uint64_t addr = region->addr + target_.offset + fragment.offset;
    return session_.stream(at(fragment), fragment.length, lkey, addr, region->rkey, copied);
  }

  std::byte* at(const Fragment& fragment) const { return target_.data + fragment.offset; }
  RangeRequest range(const Fragment& fragment) const {
    return {target_.region, target_.offset + fragment.offset, fragment.length, fragment.crc, 0};
  }
  void fail(Outcome outcome, Status status, std::string detail) {
    if (result_.outcome != Outcome::ok) return;
    result_.outcome = outcome;
    result_.status = status;
    result_.detail = std::move(detail);
  }

  Node& node_;
  Session& session_;
  const BulkTarget target_;
  const BulkOptions options_;
  Registration& memory_;
  uint64_t streamed_on_ = 0;  // the link that has WRITEs of ours, if any

 private:
  bool advance() {
    bool moved = reap();
    if (window_.size() < options_.depth && next_ < target_.length) {
      Fragment fragment;
      fragment.offset = next_;
      fragment.length =
          static_cast<uint32_t>(std::min<uint64_t>(options_.fragment_bytes, memory_.in_piece(next_)));
      prepare(fragment);
      next_ += fragment.length;
      window_.push_back(fragment);
      moved = true;
    }
    const auto held = node_.lock();
    if (session_.is_over()) fail(Outcome::session_failed, Status::success, "the session ended");
    if (is_lost())
      fail(Outcome::failed_status, Status::wr_flush_err, "the link broke before it was answered");
    for (Fragment& fragment : window_) {
      if (fragment.check || fragment.is_written) continue;
      if (result_.outcome != Outcome::ok || !begin(fragment)) break;
      moved = true;
    }
    return moved;
  }

  // Fragments that are done, from the oldest on.
  bool reap() {
    bool moved = false;
    while (!window_.empty() && is_finished(window_.front())) {
      Fragment& fragment = window_.front();
      moved = true;
      const auto failed = [](const Call* call) { return call && call->outcome != Outcome::ok; };
      if (const Call* bad = failed(fragment.read)    ? fragment.read
                            : failed(fragment.check) ? fragment.check
                                                     : nullptr) {
        const auto text = bad->answer();
        fail(bad->outcome, bad->status, {reinterpret_cast<const char*>(text.data()), text.size()});
        return true;
      }
      uint32_t answer = 0;
      if (fragment.check) {
        std::memcpy(&answer, fragment.check->result.data(),
                    std::min(sizeof answer, fragment.check->result.size()));
        hear(*fragment.check);
      }
      const bool right = is_right(fragment, answer);
      {
        const auto held = node_.lock();
        end_calls(fragment);
      }
      if (right) {
        acknowledged_.fetch_add(fragment.length, std::memory_order_relaxed);
        window_.pop_front();
      } else if (++fragment.attempts >= kMostAttempts) {
        fail(Outcome::damaged, Status::success, "a fragment's contents never matched their checksum");
      } else {
        return true;  // advance() begins it again
      }
    }
    return moved;
  }

  static bool is_finished(const Fragment& fragment) {
    const auto done = [](const Call* call) {
      return !call || call->finished.load(std::memory_order_acquire);
    };
    return fragment.is_written || (fragment.check && done(fragment.check) && done(fragment.read));
  }

  bool may_go_on() {
    const uint64_t now = now_ns();
    if (now - asked_ns_ < kAskEveryNs) return true;
    asked_ns_ = now;
    result_.interrupted = !keep_going_();
    return !result_.interrupted;
  }

  void end_calls(Fragment& fragment) {
    for (Call** call : {&fragment.check, &fragment.read}) {
      if (*call) node_.calls().end(**call);
      *call = nullptr;
    }
  }

  // Nobody may touch the memory after we return: takes everything back, and waits for what is on the wire.
  void settle() {
    {
      const auto held = node_.lock();
      for (Fragment& fragment : window_) {
        for (Call** call : {&fragment.check, &fragment.read}) {
          if (!*call) continue;
          if ((*call)->finished.load(std::memory_order_relaxed)) {
            node_.calls().end(**call);
          } else {
            session_.cancel(**call);
          }
          *call = nullptr;
        }
      }
    }
    const bool finished = acknowledged_.load(std::memory_order_relaxed) == target_.length;
    const uint64_t give_up = now_ns() + kSettleNs;
    bool is_free = false;
    while (!is_free && now_ns() < give_up) {
      {
        const auto held = node_.lock();
        is_free = session_.let_go(memory_);
        // WRITEs are not reported, but what comes after them on the same link is.
        if (is_free && !finished && streamed_on_ == session_.links() && session_.link()) {
          is_free = session_.link()->drained();
        }
        if (session_.is_over()) is_free = true;
      }
      if (!is_free) node_.linger();
    }
    if (finished && is_free) return;
    const auto held = node_.lock();
    memory_.close();
  }

  std::atomic<uint64_t>& acknowledged_;
  const std::function<bool()>& keep_going_;
  std::deque<Fragment> window_;
  uint64_t next_ = 0, asked_ns_ = 0;
  BulkResult result_;
};

// A fragment is a WRITE and then a message that has the peer check what has landed. A link that breaks
// between the two makes the check fail on the next link, and the fragment is written again.
class Put final : public Transfer {
  using Transfer::Transfer;

  // A wire that copies the bytes sums them in passing. When it lately has not, they are summed here.
  void prepare(Fragment& fragment) override {
    if (to_sum_ == 0) return;
    --to_sum_;
    sum(fragment);
  }
  void sum(Fragment& fragment) {
    fragment.crc = crc32c(0, at(fragment), fragment.length);
    fragment.is_summed = true;
  }

  bool begin(Fragment& fragment) override {
    std::optional<uint32_t> copied;
    if (!write(fragment, copied)) return false;
    if (copied) {
      fragment.crc = *copied;
      unsummed_ = 0;
    } else {
      if (!fragment.is_summed) sum(fragment);
      if (to_sum_ == 0) to_sum_ = unsummed_ = std::min(2 * unsummed_ + 1, kMostUnsummed);
    }
    const RangeRequest request = range(fragment);
    fragment.check = session_.call(method::verify, std::as_bytes(std::span(&request, 1)));
    return fragment.check != nullptr;
  }

  bool is_right(const Fragment&, uint32_t answer) override { return answer == 1; }

  static constexpr uint32_t kMostUnsummed = 63;
  uint32_t to_sum_ = 0;    // so many fragments more
  uint32_t unsummed_ = 0;  // it was that many before the wire was asked last
};

// Fragments are WRITEs, and a call of the caller's is behind the last, on one link. On the next link the call
// would be repeated, but not the WRITEs before it: the peer would find what lay there before.
class Delivery final : public Transfer {
 public:
  Delivery(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
           Registration& memory, std::atomic<uint64_t>& acknowledged, const std::function<bool()>& keep_going,
           const Announcement& announcement)
      : Transfer(node, session, target, options, memory, acknowledged, keep_going),
        announcement_(announcement) {}
  std::string answer;

 private:
  bool begin(Fragment& fragment) override {
    std::optional<uint32_t> copied;
    const bool is_last = fragment.offset + fragment.length == target_.length;
    if (!is_behind_ && !write(fragment, copied)) return false;
    if (!is_last) return fragment.is_written = true;
    is_behind_ = true;  // if there is no room for the call, the WRITEs need not be repeated
    call_ = fragment.check = session_.call(announcement_.method, announcement_.payload);
    return fragment.check != nullptr;
  }
  bool is_right(const Fragment&, uint32_t) override { return true; }
  void hear(const Call& call) override {
    const auto text = call.answer();
    answer.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  bool is_lost() const override {
    const uint64_t link = streamed_on_ != 0 ? streamed_on_ : announcement_.link;
    return link != 0 && (!session_.link() || session_.links() != link);
  }
  void rest() override {
    if (!call_) return node_.linger();
    node_.wait(*call_, now_ns() + kAskEveryNs);
  }

  const Announcement announcement_;
  Call* call_ = nullptr;
  bool is_behind_ = false;
};

// A fragment is a READ and, beside it, a question for the checksum.
class Get final : public Transfer {
  using Transfer::Transfer;

  bool begin(Fragment& fragment) override {
    if (!session_.may_stream()) return false;
    fragment.read = session_.operate(Opcode::read, target_.region, target_.offset + fragment.offset,
                                     at(fragment), fragment.length, &memory_);
    if (!fragment.read) return false;
    const RangeRequest request = range(fragment);
    fragment.check = session_.call(method::checksum, std::as_bytes(std::span(&request, 1)));
    return fragment.check != nullptr;
  }

  bool is_right(const Fragment& fragment, uint32_t answer) override {
    return crc32c(0, at(fragment), fragment.length) == answer;
  }
};

}  // namespace

BulkResult put(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going) {
  return Put(node, session, target, options, memory, acknowledged, keep_going).run();
}

BulkResult deliver(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
                   Registration& memory, const Announcement& announcement,
                   const std::function<bool()>& keep_going) {
  std::atomic<uint64_t> acknowledged{0};
  Delivery delivery(node, session, target, options, memory, acknowledged, keep_going, announcement);
  BulkResult result = delivery.run();
  if (result.outcome == Outcome::ok) result.detail = std::move(delivery.answer);
  return result;
}

BulkResult get(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going) {
  return Get(node, session, target, options, memory, acknowledged, keep_going).run();
}

}  // namespace verbena::transport
