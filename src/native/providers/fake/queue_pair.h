// A queue pair that exchanges packets with another one of this process. One request is in flight at a time.
// It is sent again when its timer expires, and its sequence number lets the responder detect a repetition.
#pragma once

#include <memory>
#include <mutex>

#include "providers/fake/fabric.h"
#include "providers/fake/packet.h"
#include "providers/soft/context.h"
#include "providers/soft/queue_pair.h"

namespace verbena::fake {

class Link;

class FakeQueuePair final : public soft::SoftQueuePair {
 public:
  FakeQueuePair(std::shared_ptr<soft::SoftDomain> domain, const QpOptions& options, const Address& address);
  ~FakeQueuePair() override { close(); }

  Capabilities capabilities() const override;
  const Address& address() const { return me_; }
  // Moves a queue pair from RESET or INIT to RTS with this peer, for the connection manager. Throws
  // bad_transition.
  void connect_to(const Address& peer, const ConnectParams& params);
  void set_link(std::shared_ptr<Link> link);  // the link to inform when this end closes
  void link_ended(const Link& link);          // moves to ERR, unless it has another link now

 private:
  enum class Waiting : uint8_t {
    no,
    response,
    receiver
  };  // receiver: waits until the peer has posted a receive

  void connect_wire(const QpAttributes&) override {}
  void wire_state_changed(QpState state) override;
  void transmit() override;
  void advance() override;
  void after_unlock() override { fabric_.run(); }
  void disconnect_wire() override;

  // Requester.
  void send_head();
  Status check_head();
  void timer_expired();
  void take_response(const OpenedPacket& packet);
  Status place_response(const OpenedPacket& packet);
  void finish_head(Status status);
  void wait(Waiting what, uint64_t delay_ns);

  // Responder.
  void take_request(const OpenedPacket& packet);
  Status check_request(const PacketHeader& header) const;
  Status execute(const OpenedPacket& packet, const soft::PostedReceive* receive, Packet& answer);
  Status place_message(const OpenedPacket& packet, const soft::PostedReceive& receive);

  bool comes_from_peer(const PacketHeader& header) const;
  void send_packet(Packet& packet, PacketHeader header);  // seals it

  Fabric& fabric_ = Fabric::instance();
  const Address me_;

  Waiting waiting_ = Waiting::no;
  uint64_t deadline_ns_ = 0;  // 0: without limit
  uint32_t send_sequence_ = 0;
  uint8_t retries_ = 0, rnr_retries_ = 0;  // of the request in flight
  bool is_first_rts_ = true;

  uint32_t expected_sequence_ = 0;
  Packet last_answer_;  // repeated for a repeated request, which must not be executed again

  std::mutex link_mutex_;
  std::shared_ptr<Link> link_;
};

}  // namespace verbena::fake
