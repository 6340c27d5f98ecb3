// Events from native code to an event loop of Python, in batches: the queue's eventfd is signalled once per
// batch.
// May depend on transport/, verbs/ and util/ only.
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
  finished,     // a call or operation of this side has ended: `token`, `outcome`, `payload`
  request,      // the peer calls `method`; reply to `call`
  cancelled,    // the peer no longer waits for `call`
  link_lost,    // the session has lost its link: `status`, with the reason as text in `payload`
  peer_closed,  // the peer ends the session
};

// How a call or an operation ended.
enum class Outcome : uint8_t {
  ok,
  remote_failure,  // the method failed; the payload is the reason
  no_such_method,
  busy,    // the peer has too many requests
  denied,  // the region does not exist, was revoked, or is for other sessions
  out_of_range,
  too_long,
  damaged,        // the contents did not match their checksum after several attempts
  failed_status,  // the work request failed: see its completion status
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
    if (!signalled_ && !wakeups_suppressed_) {
      signalled_ = true;
      event_fd_.signal();
    }
  }
  // Takes all events and clears the eventfd.
  std::vector<Event> take() {
    std::vector<Event> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(events_);
    if (signalled_) {
      signalled_ = false;
      event_fd_.clear();
    }
    return taken;
  }
  // `suppressed`: the loop polls the queue, so that push() need not signal the eventfd.
  void set_wakeups_suppressed(bool suppressed) {
    const std::lock_guard lock(mutex_);
    wakeups_suppressed_ = suppressed;
    if (!suppressed && !events_.empty() && !signalled_) {
      signalled_ = true;
      event_fd_.signal();
    }
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }
  int fileno() const { return event_fd_.get(); }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  bool signalled_ = false, wakeups_suppressed_ = false;
  const EventFd event_fd_;
};

}  // namespace verbena::transport
