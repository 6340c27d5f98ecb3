// A queue pair between two processes of one host. Set-up in queue_pair.cc, sent messages in
// queue_pair_send.cc, received ones in queue_pair_receive.cc, direct access in queue_pair_one_sided.cc.
// Everything below the public part runs under the base class's lock unless stated otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "providers/shm/link.h"
#include "providers/shm/memory/memfd.h"
#include "providers/shm/ring.h"
#include "providers/soft/queue_pair.h"

namespace verbena::shm {

class ShmCompletionQueue;
class ShmContext;

class ShmQueuePair final : public soft::SoftQueuePair {
 public:
  ShmQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options, uint32_t number,
               ShmContext& context);
  ~ShmQueuePair() override { close(); }
  Capabilities capabilities() const override;

  // The ring that the peer writes into, created on first use. Valid until the QP is reset or closed.
  UniqueFd share_ring();
  // Binds this QP to a peer's QP, whose ring becomes the outgoing ring. False when the QP is bound to another
  // peer.
  bool bind_peer(const std::shared_ptr<Link>& link, int ring_fd, uint32_t peer_qp);
  bool is_managed() const;  // by the connection manager
  bool is_bound_to(const Gid& gid, uint32_t peer_qp) const;

  // For the progress thread.
  void drive_and_arm();
  void set_doorbell(bool armed);
  bool is_stalled() const { return stalled_.load(std::memory_order_relaxed); }
  bool is_blocked() const { return blocked_.load(std::memory_order_relaxed); }
  bool is_polled() const;
  bool is_waiting() const;  // for an acknowledgement
  void check_timers(uint64_t now);
  void link_failed(const Link& link);

  // From INIT on, only the connection manager moves the QP; a modify() by the program is refused.
  void manage();

  // The peer, if it accesses our memory now.
  std::optional<PeerAccess> current_access() const;

 private:
  enum class Step { done, blocked };
  static constexpr uint64_t kNever = UINT64_MAX;
  // What is due when a published slot is acknowledged.
  struct SentSlot {
    uint64_t entry = 0;
    uint64_t offset = 0;
    uint64_t payload_at = 0;
    uint32_t length = 0;
    SlotKind kind = SlotKind::send;
    bool has_payload = false;
    bool ends_entry = false;
  };

  void connect_wire(const QpAttributes& attributes) override;
  void wire_state_changed(QpState state) override;
  void disconnect_wire() override;
  void transmit() override;
  void advance() override;
  bool send_at_once(const SendRequest& request, bool signal_all, uint32_t reserved) override;
  size_t copy_at_once(std::span<const SendRequest> batch) override;
  void after_unlock() override;
  void receive_posted() override;
  void grant_access();
  void drop_rings();
  std::optional<PeerAccess> current_access_locked() const;

  // queue_pair_send.cc
  Step start(uint64_t index);
  Step finish(soft::SendEntry& entry, Status status);
  Step send_message(uint64_t index);
  Step send_immediate(uint64_t index);
  Step send_staged(uint64_t index);
  Slot* claim_slot();
  bool read_acknowledgements();
  bool fail_if_peer_gone();
  void finish_acknowledged();
  void halt(uint64_t index) { halted_at_ = std::min(halted_at_, index); }
  bool is_halted() const { return halted_at_ != kNever; }
  SlotHeader& begin_slot(Slot* slot, const soft::SendEntry& entry, SlotKind kind, uint32_t length);
  SentSlot& publish(Slot* slot, uint64_t index);
  void check_doorbell();

  // queue_pair_receive.cc
  bool receive();
  bool take_slot(Slot* slot);
  bool take_message(Slot* slot, const SlotHeader& header);
  bool take_immediate(const SlotHeader& header);
  bool take_staged(Slot* slot, const SlotHeader& header);
  bool take_receive_for(const SlotHeader& header);
  void refuse(Status for_sender);
  bool fault(Status for_sender);

  // queue_pair_one_sided.cc
  Step one_sided(uint64_t index);
  Step access_directly(uint64_t index, std::byte* target);
  Step access_plain(uint64_t index);
  void begin_access();
  void end_access();
  void prefetch_remote(uint32_t rkey, uint64_t remote_addr, uint64_t length) const;

  ShmContext& shm_;
  const ShmCompletionQueue& send_cq_;
  const ShmCompletionQueue& recv_cq_;

  std::shared_ptr<Mapping> in_mapping_;  // outlives in_ while the context waits for the peer's access to end
  Mapping out_mapping_;
  uint64_t peer_ring_ = 0;  // inode of the ring behind out_
  UniqueFd in_fd_;
  std::optional<RingConsumer> in_;
  std::optional<RingProducer> out_;
  std::shared_ptr<Link> link_;
  uint32_t peer_qp_ = 0;
  bool managed_ = false;
  bool unreachable_ = false;

  // Sending.
  SentSlot sent_[kSlotCount];
  uint64_t finished_slots_ = 0;
  uint32_t idle_checks_ = 0;
  bool send_side_waits_ = false;
  uint64_t halted_at_ = kNever;  // the entry that failed: nothing behind it starts
  bool accessing_ = false;       // between begin_access() and end_access()
  bool wake_pending_ = false;    // the peer may have to be woken
  uint32_t cached_rkey_ = 0;     // the region of the last access,
  uint64_t cached_offset_ = 0;   // and the difference between the peer's addresses and ours
  std::atomic<bool> doorbell_pending_{false};
  std::atomic<bool> blocked_{false};  // requests wait for room in the ring, or for earlier requests

  // Receiving.
  soft::PostedReceive receive_;
  uint64_t receive_offset_ = 0;
  bool receiving_ = false;
  bool refused_ = false;  // the front slot was refused permanently
  std::atomic<bool> stalled_{false};
  uint64_t stalled_since_ns_ = 0;

  // Retry timer.
  uint64_t timer_mark_ = 0;
  uint64_t timer_since_ns_ = 0;
};

}  // namespace verbena::shm
