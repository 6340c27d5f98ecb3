// Work requests of Python: immutable, converted once, and posted any number of times.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include "bind/verbs/memory.h"

namespace verbena::bind {

struct SendWorkRequest {
  LocalPieces pieces;
  SendRequest request;
  nb::object local, remote;

  SendRequest posted() const {
    // post() itself reads inline bytes, so the check that their region is open must be repeated.
    if (request.flags & send_flag::inline_data) static_cast<void>(LocalPieces(local, true));
    SendRequest copy = request;
    copy.local = pieces.span();
    return copy;
  }
};

struct RecvWorkRequest {
  LocalPieces pieces;
  uint64_t id;
  nb::object local;

  RecvRequest posted() const { return {.id = id, .local = pieces.span()}; }
};

// Holds references to the local memory of the last `depth` posted requests. With the depth of the queue, this
// covers every request in flight.
class RequestReferences {
 public:
  explicit RequestReferences(size_t depth) : ring_(depth) {}
  void add(const nb::object& local) {
    if (ring_.empty()) return;
    ring_[next_] = local;
    if (++next_ == ring_.size()) next_ = 0;
  }
  void clear() { ring_.assign(ring_.size(), nb::object()); }

 private:
  std::vector<nb::object> ring_;
  size_t next_ = 0;
};

}  // namespace verbena::bind
