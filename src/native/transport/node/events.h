// What native code has to tell a program's event loop: batches, with a bell that rings once per batch.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/session/bytes.h"
#include "util/fd.h"
#include "verbs/types.h"

namespace verbena::transport {

enum class EventKind : uint8_t {
  finished,   // a call or an operation of ours: `token`, its outcome, `payload`
  request,    // a peer calls `method`: answer `call`
  cancelled,  // the peer lost interest in `call`
  link_lost,  // the session has no link any more: `status`, and `payload` says why in words
  goodbye,    // the peer ends the session
};

// How a call or an operation ended.
enum class Outcome : uint8_t {
  ok,
  remote_failure,  // the method failed: the payload says why
  no_such_method,
  busy,    // the peer has too much to do
  denied,  // the region is not there, not any more, or not for us
  out_of_range,
  too_long,
  damaged,        // the contents did not match their checksum, again and again
  failed_status,  // the request's own completion status says why
  session_failed,
};

struct Event {
  EventKind kind = EventKind::finished;
  Outcome outcome = Outcome::ok;
  Status status = Status::success;
  uint32_t method = 0;
  uint64_t session = 0, call = 0, token = 0;
  Bytes payload;
};

class EventQueue {
 public:
  void push(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (!rung_ && !quiet_) {
      rung_ = true;
      bell_.signal();
    }
  }
  // All of them; silences the bell.
  std::vector<Event> take() {
    std::vector<Event> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(events_);
    if (rung_) {
      rung_ = false;
      bell_.clear();
    }
    return taken;
  }
  // While its loop looks at the queue again and again, nobody needs the bell.
  void set_quiet(bool quiet) {
    const std::lock_guard lock(mutex_);
    quiet_ = quiet;
    if (!quiet && !events_.empty() && !rung_) {
      rung_ = true;
      bell_.signal();
    }
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }
  int fileno() const { return bell_.get(); }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  bool rung_ = false, quiet_ = false;
  const EventFd bell_;
};

}  // namespace verbena::transport
