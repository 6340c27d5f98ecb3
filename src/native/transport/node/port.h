// One wire of a node: its context, the completion queues and the shared receive queue that all sessions on
// this wire use, and the message buffers. Protected by the node's lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/session/buffer_pool.h"
#include "verbs/provider.h"

namespace verbena::transport {

class Link;

struct PortOptions {
  std::string name;  // of the wire
  uint32_t buffer_bytes = 4096;
  uint32_t pool_buffers = 10000;  // for receiving, and as many for sending
  uint32_t window = 128;          // messages that a peer may send before an acknowledgement
  bool huge_pages = false, pin = false;
};

class Port {
 public:
  static constexpr uint32_t kSpareReceives =
      8;  // per link: acknowledgements and pings are outside the window

  Port(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd,
       std::shared_ptr<CompletionQueue> cq, std::shared_ptr<SharedReceiveQueue> srq, PortOptions options);

  const std::string& name() const { return options_.name; }
  const PortOptions& options() const { return options_; }
  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& shared_context() const { return context_; }
  ProtectionDomain& pd() const { return *pd_; }
  // At least one. Links are spread over them, so that none can overflow.
  const std::vector<std::shared_ptr<CompletionQueue>>& queues() const { return queues_; }
  void add_queue(std::shared_ptr<CompletionQueue> cq) { queues_.push_back(std::move(cq)); }
  BufferPool& sends() { return sends_; }
  BufferPool& receives() { return receives_; }

  // Posts receives for the new link's window, as far as the pool allows.
  void add(Link& link);
  void remove(const Link& link);
  Link* find(uint32_t qp_num) const;
  size_t links() const { return links_.size(); }

  // Posts the buffer as a receive again, with the next batch.
  void repost(MessageBuffer* buffer);
  void flush_receives();

  bool armed = false;

 private:
  void post_more_receives();

  static constexpr size_t kRepostBatch = 16;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProtectionDomain> pd_;
  std::vector<std::shared_ptr<CompletionQueue>> queues_;
  const std::shared_ptr<SharedReceiveQueue> srq_;
  const PortOptions options_;
  BufferPool sends_, receives_;
  uint32_t posted_ = 0;
  std::vector<MessageBuffer*> to_repost_;
  std::unordered_map<uint32_t, Link*> links_;
  mutable Link* last_found_ = nullptr;  // most completions belong to the same link as the one before
  mutable uint32_t last_number_ = 0;
};

}  // namespace verbena::transport
