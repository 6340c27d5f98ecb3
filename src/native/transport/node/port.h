// One wire of a node: its context with the completion queues and the shared receive queue that all sessions
// on this wire use, and the buffers. The node's lock covers it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/session/slots.h"
#include "verbs/provider.h"

namespace verbena::transport {

class Link;

struct PortOptions {
  std::string name;  // of the wire
  uint32_t slot_bytes = 4096;
  uint32_t pool_slots = 10000;  // receives, and as many sends
  uint32_t window = 128;        // messages that a peer may have under way
  bool huge_pages = false, pin = false;
};

class Port {
 public:
  Port(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd,
       std::shared_ptr<CompletionQueue> cq, std::shared_ptr<SharedReceiveQueue> srq, PortOptions options);

  const std::string& name() const { return options_.name; }
  const PortOptions& options() const { return options_; }
  Context& context() const { return *context_; }
  ProtectionDomain& pd() const { return *pd_; }
  // Links are spread over them, so that none can overflow. Never fewer than one.
  const std::vector<std::shared_ptr<CompletionQueue>>& queues() const { return queues_; }
  void add_queue(std::shared_ptr<CompletionQueue> cq) { queues_.push_back(std::move(cq)); }
  SlotPool& sends() { return sends_; }
  SlotPool& receives() { return receives_; }

  // A link more: there are receives for its window, as far as the pool goes.
  void add(Link& link);
  void remove(const Link& link);
  Link* find(uint32_t qp_num) const;
  size_t links() const { return links_.size(); }

  // Posts the receive again, with the next batch.
  void repost(Slot* slot);
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
  SlotPool sends_, receives_;
  uint32_t posted_ = 0;
  std::vector<Slot*> to_repost_;
  std::unordered_map<uint32_t, Link*> links_;
  mutable Link* last_found_ = nullptr;  // most completions are of the same link as the one before
  mutable uint32_t last_number_ = 0;
};

}  // namespace verbena::transport
