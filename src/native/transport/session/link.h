// The queue pair that carries a session at present. It counts requests in flight, so that a post never finds
// the send queue full. Protected by the node's lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/memory/regions.h"
#include "transport/node/port.h"
#include "transport/session/message_layout.h"
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
  // The wire copies the bytes of a WRITE when it is posted, mostly before post() returns.
  bool copies() const { return copies_; }

  // Posts one request, for which there must be room(). Unsignalled requests get an id, and every few of them
  // a signal. On an error the session must give the link up.
  PostError post(SendRequest request);
  // Posts several, of which the last is signalled. False: the session must give the link up.
  bool post_all(std::span<SendRequest> requests);
  // Sends a message without payload that has no sequence number. The wire takes a copy where it can: buffers
  // that thousands of idle links keep until a later request completes would use up the pool. `full`: there is
  // no free buffer.
  PostError send_control(const MessageHeader& header);
  // Before the link is attached: sends the peer the message that no operation of a former link can arrive
  // here. False: there is no free buffer.
  bool send_ready();
  // Lends memory to the peer until this link or the memory lease ends. Returns the key. Throws as
  // bind_window() does.
  uint32_t lend(ExposedRegion& region);
  std::shared_ptr<MemoryWindow> lend(Registration& memory, uint32_t access, const Audience& audience) {
    return memory.lend(*port_, qp_, access, audience);
  }
  // Ends a memory lease, or all for an audience. The others end with the queue pair: earlier, requests that
  // the peer repeats on the next link would fail as its own fault.
  void end_memory_lease(uint64_t region) { memory_leases_.erase(region); }
  void end_memory_leases(const Audience& audience);
  // Records that requests up to this position have completed.
  void complete(uint64_t position) { completed_ = std::max(completed_, position); }
  // True: all requests have completed. Otherwise makes sure that a signalled request will report it.
  bool drained();
  uint64_t completed() const { return completed_; }
  uint64_t position() const { return posted_; }

  Session* session = nullptr;  // null: not attached yet, messages wait in `early`
  std::vector<std::pair<MessageBuffer*, uint32_t>> early;
  // Still in use by the wire although the session has given them up: freed with the link.
  std::vector<std::pair<MessageBuffer*, uint64_t>>
      control;  // buffers of unsequenced messages, with their positions
  std::vector<MessageBuffer*> retired;
  std::vector<std::shared_ptr<void>> kept;
  bool received_since_tick = true,
       sent_since_tick = true;  // tick() sets the times, so that messages read no clock
  uint64_t last_received_ns = 0, last_sent_ns = 0;

 private:
  friend class Session;
  const std::shared_ptr<Port> port_;
  const std::shared_ptr<QueuePair> qp_;
  const uint32_t number_, max_send_, max_inline_, signal_every_;
  uint64_t posted_ = 0, completed_ = 0;
  uint32_t unsignaled_ = 0;
  bool failed_ = false;
  const bool copies_;
  std::unordered_map<uint64_t, MemoryLease> memory_leases_;  // by the key of the region
};

}  // namespace verbena::transport
