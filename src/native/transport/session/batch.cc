#include "transport/session/batch.h"

#include <algorithm>
#include <array>
#include <deque>

namespace verbena::transport {
namespace {

constexpr size_t kDepth = 4;                 // waves in flight
constexpr uint64_t kWaveBytes = 512u << 10;  // the node's lock is held while a software wire copies a wave
constexpr uint64_t kSliceNs = 50'000'000;
constexpr uint64_t kGraceNs = 50'000'000, kGiveUpNs = 10'000'000'000;  // after an interrupted batch

class Batch final : Writer {
 public:
  Batch(Node& node, Session& session, const BatchRequest& request, Registration& memory, uint64_t& done,
        const std::function<bool()>& keep_going)
      : Writer(node, session, memory, keep_going), request_(request), done_(done) {}

  BulkResult run() {
    while (done_ < request_.pieces && result_.outcome == Outcome::ok) {
      const bool moved = post_waves();
      if (result_.outcome != Outcome::ok || done_ == request_.pieces) break;
      const uint64_t now = now_ns();
      if (now >= request_.deadline_ns) {
        result_.timed_out = true;
        break;
      }
      if (is_check_due(now)) {
        checked_at_ns_ = now;
        if (!may_go_on()) break;
      }
      if (!waves_.empty()) {
        if (node_.wait(*waves_.front().operation, std::min(request_.deadline_ns, now + kSliceNs))) reap();
      } else if (!moved) {
        node_.drive_or_sleep();
      }
    }
    settle();
    return result_;
  }

 private:
  struct Wave {
    Operation* operation;
    uint64_t end;  // the number of the piece after its last one
  };

  // keep_going may need Python's lock, which short batches do without.
  bool is_check_due(uint64_t now) const {
    return now - checked_at_ns_ > kSliceNs || now >= request_.deadline_ns;
  }

  // Posts as many waves as possible. Waves that end at once, as over shm, are not waited for.
  bool post_waves() {
    bool moved = false;
    while (next_ < request_.pieces && waves_.size() < kDepth) {
      const size_t count = fill();
      const auto held = node_.lock_in_turn();
      if (has_failed()) return true;  // everything since then is posted again, in order
      if (session_.is_over()) {
        fail(Outcome::session_failed, Status::success, "the session ended");
        return moved;
      }
      Operation* operation = nullptr;
      try {
        if (may_gather(count)) operation = session_.gather(request_.opcode, {pieces_.data(), count});
      } catch (const std::exception& error) {
        fail(Outcome::remote_failure, Status::success, error.what());
        return moved;
      }
      if (!operation) return moved;
      moved = true;
      next_ += count;
      if (waves_.empty() && node_.spin_for_reply(*operation)) {
        node_.operations().end(*operation);
        done_ = next_;
        was_refused_ = false;
        if (is_check_due(now_ns())) return moved;
      } else {
        waves_.push_back({operation, next_});
      }
    }
    return moved;
  }

  // Prepares the next wave in `pieces_`; returns how many pieces it has.
  size_t fill() {
    const auto most = static_cast<size_t>(std::min<uint64_t>(request_.pieces - next_, Session::kMaxGathered));
    request_.fill(next_, {pieces_.data(), most});
    uint64_t bytes = 0;
    size_t count = 0;
    for (; count < most; ++count) {
      bytes += pieces_[count].length;
      if (count > 0 && bytes > kWaveBytes) break;
      pieces_[count].memory = &memory_;
    }
    return count;
  }

  // With the lock: whether the regions of the next wave are known. Fails if a piece is not allowed.
  bool may_gather(size_t count) {
    const bool reads = request_.opcode == Opcode::read;
    const uint32_t needed = reads ? access::remote_read : access::remote_write;
    const RemoteRegion* found = nullptr;
    for (size_t i = 0; i < count; ++i) {
      const GatherPiece& piece = pieces_[i];
      if (i == 0 || piece.region != pieces_[i - 1].region) {
        found = session_.region(piece.region);
        if (!found) return false;
        if (found->refused != Outcome::ok) {
          fail(found->refused, Status::success, "the region was revoked, or is not for this session");
          return false;
        }
        if (!found->known) return false;
        if ((found->access & needed) == 0) {
          fail(Outcome::denied, Status::success,
               reads ? "the region is write-only" : "the region is read-only");
          return false;
        }
      }
      if (piece.offset > found->length || piece.length > found->length - piece.offset) {
        fail(Outcome::out_of_range, Status::success, "the range leaves the region");
        return false;
      }
    }
    return true;
  }

  bool has_failed() const {
    return std::any_of(waves_.begin(), waves_.end(), [](const Wave& wave) {
      return wave.operation->finished.load(std::memory_order_acquire) &&
             wave.operation->outcome != Outcome::ok;
    });
  }

  // Takes finished waves from the front. If one failed with its link, the waves after it have failed as well:
  // all of them are posted again.
  void reap() {
    const auto held = node_.lock();
    while (!waves_.empty() && waves_.front().operation->finished.load(std::memory_order_acquire)) {
      const Wave wave = waves_.front();
      const Outcome outcome = wave.operation->outcome;
      const Status status = wave.operation->status;
      if (outcome == Outcome::ok) {
        node_.operations().end(*wave.operation);
        waves_.pop_front();
        done_ = wave.end;
        was_refused_ = false;
        continue;
      }
      const bool is_final = outcome != Outcome::failed_status || is_own_fault(status);
      // The peer ends its leases before this end knows that the link is being replaced: ask once more.
      const bool may_ask = status == Status::rem_access_err && !std::exchange(was_refused_, true);
      if (is_final && !may_ask) fail(outcome, status, "");
      for (Wave& failed : waves_) drop(failed.operation);
      waves_.clear();
      next_ = done_;
    }
  }

  // After success nothing is posted. Otherwise waits for the batch's own operations, and soon ends the link
  // instead; other batches may use the same memory.
  void settle() {
    if (done_ == request_.pieces) return;
    const uint64_t begin = now_ns();
    bool is_free = false;
    while (!is_free && now_ns() - begin < kGiveUpNs) {
      {
        const auto held = node_.lock();
        const bool is_open = std::any_of(waves_.begin(), waves_.end(), [](const Wave& wave) {
          return !wave.operation->finished.load(std::memory_order_relaxed);
        });
        is_free = (!is_open && !session_.has_lost_link()) || session_.is_over();
        if (is_open && now_ns() - begin > kGraceNs) {
          session_.lose_link(Status::resp_timeout_err, "a batch was given up and did not end");
        }
      }
      if (!is_free) node_.drive_or_sleep();
    }
    const auto held = node_.lock();
    for (Wave& wave : waves_) drop(wave.operation);
    if (!is_free || session_.is_over()) memory_.close();  // so that no wire accesses it
  }

  const BatchRequest& request_;
  uint64_t& done_;
  uint64_t next_ = 0, checked_at_ns_ = now_ns();
  bool was_refused_ = false;
  std::deque<Wave> waves_;
  std::array<GatherPiece, Session::kMaxGathered> pieces_;
};

}  // namespace

BulkResult run_batch(Node& node, Session& session, const BatchRequest& request, Registration& memory,
                     uint64_t& done, const std::function<bool()>& keep_going) {
  done = 0;
  return Batch(node, session, request, memory, done, keep_going).run();
}

}  // namespace verbena::transport
