#include "transport/session/bulk.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "util/clock.h"
#include "util/crc32c/crc32c.h"

namespace verbena::transport {
namespace {

constexpr uint32_t kMaxAttempts = 8;  // per fragment whose checksum does not match

// What put and get share: fragments in order, and a window over them.
class Transfer : protected Writer {
 public:
  Transfer(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
           Registration& memory, std::atomic<uint64_t>& acknowledged, const std::function<bool()>& keep_going)
      : Writer(node, session, memory, keep_going),
        target_(target),
        options_(options),
        acknowledged_(acknowledged) {}
  virtual ~Transfer() = default;

  BulkResult run() {
    while (acknowledged_.load(std::memory_order_relaxed) < target_.length && result_.outcome == Outcome::ok) {
      const bool moved = advance();
      if (result_.outcome != Outcome::ok) break;
      if (now_ns() >= options_.deadline_ns) {
        result_.timed_out = true;
        break;
      }
      if (!moved) {
        if (!may_go_on()) break;
        node_.drive_or_sleep();
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
    Operation* check = nullptr;  // the peer's checksum or verdict
    Operation* read = nullptr;
  };

  // With the lock. Starts a fragment. False: not possible now.
  virtual bool begin(Fragment& fragment) = 0;
  // Whether the contents are right, after both operations have finished.
  virtual bool is_right(const Fragment& fragment, uint32_t answer) = 0;
  // Before begin(), without the lock.
  virtual void prepare(Fragment&) {}

  // With the lock. Writes a fragment. False: not possible now, or it has failed.
  bool write_fragment(const Fragment& fragment, std::optional<uint32_t>& copied) {
    return write(target_.region, target_.offset + fragment.offset, at(fragment), fragment.length, &copied);
  }
  std::byte* at(const Fragment& fragment) const { return target_.data + fragment.offset; }
  RangeRequest range(const Fragment& fragment) const {
    return {target_.region, target_.offset + fragment.offset, fragment.length, fragment.crc, 0};
  }

  const BulkTarget target_;
  const BulkOptions options_;

 private:
  bool advance() {
    bool moved = reap();
    if (window_.size() < options_.depth && next_ < target_.length) {
      Fragment fragment;
      fragment.offset = next_;
      fragment.length = static_cast<uint32_t>(
          std::min({uint64_t{options_.fragment_bytes}, kMaxFragment, uint64_t{memory_.in_piece(next_)}}));
      prepare(fragment);
      next_ += fragment.length;
      window_.push_back(fragment);
      moved = true;
    }
    const auto held = node_.lock();
    if (session_.is_over()) fail(Outcome::session_failed, Status::success, "the session ended");
    for (Fragment& fragment : window_) {
      if (fragment.check) continue;
      if (result_.outcome != Outcome::ok || !begin(fragment)) break;
      moved = true;
    }
    return moved;
  }

  // Takes finished fragments from the front of the window.
  bool reap() {
    bool moved = false;
    while (!window_.empty() && is_finished(window_.front())) {
      Fragment& fragment = window_.front();
      moved = true;
      const auto failed = [](const Operation* operation) {
        return operation && operation->outcome != Outcome::ok;
      };
      if (const Operation* bad = failed(fragment.read)    ? fragment.read
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
      }
      const bool right = is_right(fragment, answer);
      {
        const auto held = node_.lock();
        end_calls(fragment);
      }
      if (right) {
        acknowledged_.fetch_add(fragment.length, std::memory_order_relaxed);
        window_.pop_front();
      } else if (++fragment.attempts >= kMaxAttempts) {
        fail(Outcome::damaged, Status::success, "a fragment's contents never matched their checksum");
      } else {
        return true;  // advance() starts it again
      }
    }
    return moved;
  }

  static bool is_finished(const Fragment& fragment) {
    const auto done = [](const Operation* operation) {
      return !operation || operation->finished.load(std::memory_order_acquire);
    };
    return fragment.check && done(fragment.check) && done(fragment.read);
  }

  void end_calls(Fragment& fragment) {
    for (Operation** operation : {&fragment.check, &fragment.read}) {
      if (*operation) node_.operations().end(**operation);
      *operation = nullptr;
    }
  }

  // Cancels what is left and waits for posted operations: no wire may access the memory after the return.
  void settle() {
    {
      const auto held = node_.lock();
      for (Fragment& fragment : window_) {
        drop(fragment.check);
        drop(fragment.read);
      }
    }
    release(acknowledged_.load(std::memory_order_relaxed) == target_.length);
  }

  std::atomic<uint64_t>& acknowledged_;
  std::deque<Fragment> window_;
  uint64_t next_ = 0;
};

// A fragment is a WRITE, then a message that makes the peer verify the contents. If the link breaks between
// the two, the check fails on the next link and the fragment is written again.
class Put final : public Transfer {
  using Transfer::Transfer;

  // A wire that copies the bytes computes the checksum while it copies. If it recently did not, it is
  // computed here.
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
    if (!write_fragment(fragment, copied)) return false;
    if (copied) {
      fragment.crc = *copied;
      last_local_sums_ = 0;
    } else {
      if (!fragment.is_summed) sum(fragment);
      if (to_sum_ == 0) to_sum_ = last_local_sums_ = std::min(2 * last_local_sums_ + 1, kMaxLocalSums);
    }
    const RangeRequest request = range(fragment);
    fragment.check = session_.call(method::verify, std::as_bytes(std::span(&request, 1)));
    return fragment.check != nullptr;
  }

  bool is_right(const Fragment&, uint32_t answer) override { return answer == 1; }

  static constexpr uint32_t kMaxLocalSums = 63;
  uint32_t to_sum_ = 0;           // fragments left to sum here
  uint32_t last_local_sums_ = 0;  // value of to_sum_ at the last attempt to let the wire do it
};

// A fragment is a request for the peer's checksum and, in parallel, a READ. The request comes first: a wire
// that copies when the READ is posted copies while the peer computes.
class Get final : public Transfer {
  using Transfer::Transfer;

  bool begin(Fragment& fragment) override {
    if (!session_.may_stream()) return false;
    const RangeRequest request = range(fragment);
    fragment.check = session_.call(method::checksum, std::as_bytes(std::span(&request, 1)));
    if (!fragment.check) return false;
    fragment.read = session_.operate(Opcode::read, target_.region, target_.offset + fragment.offset,
                                     at(fragment), fragment.length, &memory_, true);
    return fragment.read != nullptr;  // null: the session has ended, which advance() reports
  }

  bool is_right(const Fragment& fragment, uint32_t answer) override {
    const std::optional<uint32_t>& copied = fragment.read->crc32c;
    return (copied ? *copied : crc32c(0, at(fragment), fragment.length)) == answer;
  }
};

}  // namespace

BulkResult put(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going) {
  return Put(node, session, target, options, memory, acknowledged, keep_going).run();
}

BulkResult get(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going) {
  return Get(node, session, target, options, memory, acknowledged, keep_going).run();
}

}  // namespace verbena::transport
