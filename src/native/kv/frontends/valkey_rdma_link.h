// A queue pair that carries the two byte streams of a ValkeyRdmaWindow: both ends of Valkey over RDMA use it.
// One thread at a time.
// Depends on the protocol and on verbs; not on the engine or sessions.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kv/protocol/valkey_rdma_window.h"
#include "verbs/provider.h"

namespace verbena::kv {

struct ValkeyRdmaResources {
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<SharedReceiveQueue> srq;  // not shared with other links
};

// Must be created before the queue pair is connected: its receives must be posted when the peer's first
// message arrives.
class ValkeyRdmaLink {
 public:
  static constexpr uint32_t kReceives = 1024, kSends = 512;

  ValkeyRdmaLink(ValkeyRdmaResources parts, uint32_t window_bytes);
  ~ValkeyRdmaLink();

  // Call when the queue pair is connected: advertises our window to the peer.
  void start(std::shared_ptr<QueuePair> qp);
  // Handles completions; afterwards arrived() may return bytes. False: the link has failed; drop it.
  bool drive();
  // The bytes that have arrived, valid until consume(), which must follow when they have been used.
  std::string_view arrived() const;
  bool consume(size_t bytes);  // false: the link has failed
  // Sends as many bytes as there is room for, and returns how many. 0: no room; call drive() and retry.
  size_t send(std::string_view bytes);
  bool keep_alive();
  bool is_over() const { return over_; }
  // Limits the number of WRITEs since the peer's last message: a stock server accepts connections with no RNR
  // retry, so a full receive queue would break the connection.
  void limit_unanswered_writes() { limits_unanswered_ = true; }
  CompletionQueue& cq() { return *parts_.cq; }
  bool has_unsent() const { return staged_ > 0; }

 private:
  static constexpr uint32_t kMostUnanswered = 900;
  enum Tag : uint64_t { receive_tag = 1, write_tag = 2, control_tag = 3 };
  struct InFlight {
    uint32_t bytes;
  };

  // Memory of one purpose with a key of its own, which covers it exactly.
  struct Area {
    Area(const ValkeyRdmaResources& parts, size_t bytes, uint32_t access);
    ~Area() { region->close(); }
    std::byte* at(size_t offset) const { return memory->data() + offset; }
    Sge piece(size_t offset, uint32_t length) const {
      return {reinterpret_cast<uint64_t>(at(offset)), length, region->lkey()};
    }

    std::shared_ptr<Memory> memory;
    std::shared_ptr<MemoryRegion> region;
  };

  void post_receive(uint32_t index);
  bool post_control(const ControlMessage& message);
  bool post_controls();
  bool handle(const Completion& completion);
  bool fail() {
    over_ = true;
    return false;
  }

  const ValkeyRdmaResources parts_;
  const uint32_t window_bytes_;
  const Area window_area_;  // the peer writes into it
  const Area staging_, receives_, controls_;
  ValkeyRdmaWindow window_;
  std::shared_ptr<QueuePair> qp_;
  // The staging ring: [tail, tail + staged) is in flight.
  uint32_t tail_ = 0, staged_ = 0;
  std::deque<InFlight> writes_;
  uint32_t controls_posted_ = 0, controls_done_ = 0;
  std::deque<ControlMessage> waiting_controls_;
  uint32_t unanswered_ = 0;
  bool limits_unanswered_ = false, over_ = false;
};

}  // namespace verbena::kv
