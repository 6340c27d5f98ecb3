// The queue pair that carries a session for now. It counts what is under way, so that a post never finds the
// send queue full. The node's lock covers it.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/node/port.h"
#include "verbs/provider.h"

namespace verbena::transport {

class Session;

class Link {
 public:
  Link(std::shared_ptr<Port> port, std::shared_ptr<QueuePair> qp);
  ~Link();  // its queue pair must have been closed

  Port& port() const { return *port_; }
  uint32_t number() const { return number_; }
  uint32_t room() const { return max_send_ - static_cast<uint32_t>(posted_ - completed_); }
  uint32_t max_inline() const { return max_inline_; }
  bool failed() const { return failed_; }
  // Whoever posts a WRITE copies the bytes, mostly at once.
  bool copies() const { return copies_; }

  // Posts one request, for which there must be room. Unsignalled ones get an id and, now and then, a signal
  // of ours. Anything but `none`: the link is unfit, and the session must give it up.
  PostError post(SendRequest request);
  // The same for several at once, of which the last is signalled. False: the link is unfit.
  bool post_all(std::span<SendRequest> requests);
  // Before it is a session's: tells the peer that nothing of a former link can land here any more.
  // False: there is no buffer for it.
  bool say_ready();
  // A request up to this one has completed.
  void complete(uint64_t position) { completed_ = std::max(completed_, position); }
  // Everything was reported: true, or else a report is on its way.
  bool drained();
  uint64_t completed() const { return completed_; }
  uint64_t position() const { return posted_; }

  Session* session = nullptr;  // null: not attached yet, messages wait in `early`
  std::vector<std::pair<Slot*, uint32_t>> early;
  // Still the wire's, although the session has given them up: they go when the link does.
  std::vector<std::pair<Slot*, uint64_t>> control;  // buffers of unsequenced messages, with their positions
  std::vector<Slot*> retired;
  std::vector<std::shared_ptr<void>> kept;
  bool heard = true, spoke = true;  // since the last tick, which keeps the times: clocks are dear
  uint64_t heard_ns = 0, spoke_ns = 0;

 private:
  friend class Session;
  const std::shared_ptr<Port> port_;
  const std::shared_ptr<QueuePair> qp_;
  const uint32_t number_, max_send_, max_inline_, signal_every_;
  uint64_t posted_ = 0, completed_ = 0;
  uint32_t unsignaled_ = 0;
  bool failed_ = false;
  const bool copies_;
};

}  // namespace verbena::transport
