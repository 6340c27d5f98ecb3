#include "transport/session/writer.h"

#include "util/clock.h"

namespace verbena::transport {

bool Writer::write(uint64_t region, uint64_t offset, Registration& memory, std::byte* data, uint32_t length,
                   std::optional<uint32_t>* copied) {
  if (!session_.may_stream()) return false;
  const RemoteRegion* found = session_.region(region);
  if (!found) return false;
  if (found->refused != Outcome::ok) {
    fail(found->refused, Status::success, "the region was revoked, or is not for this session");
    return false;
  }
  if (!found->known) return false;
  if (!(found->access & access::remote_write)) {
    fail(Outcome::denied, Status::success, "the region is read-only");
    return false;
  }
  if (offset > found->length || length > found->length - offset) {
    fail(Outcome::out_of_range, Status::success, "the range leaves the region");
    return false;
  }
  uint32_t lkey;
  try {
    lkey = node_.registering([&] { return memory.lkey(session_.link()->port(), data); });
  } catch (const std::exception& error) {
    fail(Outcome::remote_failure, Status::success, error.what());
    return false;
  }
  streamed_on_ = session_.links();
  return session_.stream(data, length, lkey, found->addr + offset, found->rkey, copied);
}

bool Writer::may_go_on() {
  const uint64_t now = now_ns();
  if (now - checked_ns_ < kCheckEveryNs) return true;
  checked_ns_ = now;
  result_.interrupted = !keep_going_();
  return !result_.interrupted;
}

void Writer::drop(Operation*& operation) {
  if (!operation) return;
  if (operation->finished.load(std::memory_order_relaxed)) {
    node_.operations().end(*operation);
  } else {
    session_.cancel(*operation);
  }
  operation = nullptr;
}

void Writer::release(bool finished) {
  constexpr uint64_t kReleaseTimeoutNs = 10'000'000'000;
  constexpr uint64_t kGraceNs = 50'000'000;
  const uint64_t begin = now_ns();
  const uint64_t give_up = begin + kReleaseTimeoutNs;
  bool may_end_link = result_.interrupted || result_.timed_out;
  bool is_free = false;
  while (!is_free && now_ns() < give_up) {
    {
      const auto held = node_.lock();
      is_free = session_.withdraw(memory_);
      // WRITEs are unsignalled, but later requests on the same link report them.
      if (is_free && !finished && streamed_on_ == session_.links() && session_.link()) {
        is_free = session_.link()->drained();
      }
      if (session_.is_over()) is_free = true;
      // The caller has given up: its wait must not last until the wire notices that the peer is silent.
      if (!is_free && may_end_link && now_ns() - begin > kGraceNs) {
        may_end_link = false;
        session_.lose_link(Status::resp_timeout_err, "a transfer was given up and did not end");
      }
    }
    if (!is_free) node_.drive_or_sleep();
  }
  if (finished && is_free) return;
  const auto held = node_.lock();
  memory_.close();
}

void Writer::fail(Outcome outcome, Status status, std::string detail) {
  if (result_.outcome != Outcome::ok) return;
  result_.outcome = outcome;
  result_.status = status;
  result_.detail = std::move(detail);
}

}  // namespace verbena::transport
