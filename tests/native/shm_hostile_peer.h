// A victim with one queue pair on the shm wire, and a peer process that speaks the control protocol by
// itself: it publishes any region table, any arena and any ring. Used by hostile_peer_test and the fuzz
// target shm_peer.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "providers/shm/control.h"
#include "providers/shm/link.h"
#include "providers/shm/provider.h"
#include "providers/shm/ring_layout.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"
#include "util/random.h"

namespace hostile {

using namespace verbena;
using namespace verbena::shm;

constexpr uint32_t kQp = 77, kKey = 0x5eed0001;
constexpr uint32_t kOtherKey = 0x5eed0002;
constexpr int kTimeoutMs = 5000;

inline void demand(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct Victim {
  explicit Victim(std::shared_ptr<Context> shared = nullptr)
      : context(shared ? std::move(shared) : make_provider()->open("")) {}

  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd = context->alloc_pd();
  std::shared_ptr<CompletionQueue> cq = context->create_cq(1024);
  std::shared_ptr<QueuePair> qp = pd->create_qp({.send_cq = cq, .recv_cq = cq});
  std::shared_ptr<Memory> memory = context->allocate(1 << 16, {.peer_access = access::all});
  std::shared_ptr<MemoryRegion> region =
      pd->register_memory(memory->data(), memory->size(), access::all, false);
  Sge piece{reinterpret_cast<uint64_t>(memory->data()), 4096, region->lkey()};

  ~Victim() { qp->close(); }
  Gid gid() const { return context->query().ports[0].gids[0]; }

  void connect_to(const Gid& peer) {
    soft::move_to_init(*qp);
    soft::move_to_rts(*qp, {.dest_gid = peer, .dest_qp_num = kQp, .timeout = 1, .retry_count = 1});
  }
  bool post(Opcode opcode, uint32_t rkey, uint64_t remote_addr, uint32_t length, uint64_t id = 1) {
    const Sge part{piece.addr, length, piece.lkey};
    const SendRequest request{.id = id,
                              .opcode = opcode,
                              .flags = send_flag::signaled,
                              .rkey = rkey,
                              .remote_addr = remote_addr,
                              .local = {&part, 1}};
    return qp->post_send({&request, 1}).accepted == 1;
  }
  Completion wait() {
    Completion completion;
    const uint64_t began = now_ns();
    while (cq->poll({&completion, 1}) == 0) demand(now_ns() - began < 5'000'000'000, "no completion");
    return completion;
  }
};

struct Peer {
  UniqueFd socket;
  Gid gid{0xfd, 1, 2, 3};
  uint64_t nonce = random_value<uint64_t>();
  UniqueFd own_ring = make_memfd("hostile", sizeof(RingSegment), false);
  Mapping own{own_ring.get(), sizeof(RingSegment), true};
  UniqueFd table_fd = make_memfd("hostile", soft::kRegionTableBytes, false);
  Mapping table{table_fd.get(), soft::kRegionTableBytes, true};
  Mapping theirs;
  UniqueFd address, proof;

  explicit Peer(const Gid& victim) : socket(dial(node_address(victim))) {
    demand(bool(socket), "the victim cannot be reached");
    const auto random = random_value<uint64_t>();
    std::memcpy(gid.data() + 8, &random, sizeof random);
    address = listen_at(node_address(gid), 4);
    ring()->header.magic = kRingMagic;
    ring()->header.responder.store(static_cast<uint32_t>(Responder::ready));
    ring()->header.access_flags.store(access::all);
  }

  RingSegment* ring() { return reinterpret_cast<RingSegment*>(own.data()); }       // victim → hostile peer
  RingSegment* target() { return reinterpret_cast<RingSegment*>(theirs.data()); }  // hostile peer → victim
  soft::RegionEntry* entries() { return reinterpret_cast<soft::RegionEntry*>(table.data()); }

  // False: the victim has closed the link.
  bool send(const OutgoingMessage& message) {
    for (;;) {
      const Sent sent = send_message(socket.get(), message);
      if (sent != Sent::busy) return sent == Sent::done;
      pollfd ready{socket.get(), POLLOUT, 0};
      demand(poll(&ready, 1, kTimeoutMs) == 1, "the victim does not read");
    }
  }
  void hello() { send_hello(socket.get(), nonce); }

  // Exchanges rings with the victim's QP, and proves the GID when the victim asks for it.
  void attach(uint32_t victim_qp) {
    send({.kind = MessageKind::attach, .from_qp = kQp, .to_qp = victim_qp, .fds = {own_ring.get(), -1}});
    prove();
    for (;;) {
      ControlMessage message = next();
      if (message.header.kind != MessageKind::attached) continue;
      demand(bool(message.fds[0]), "the victim refused the ring");
      theirs = Mapping(message.fds[0].get(), sizeof(RingSegment), true);
      return;
    }
  }
  void prove() {
    wait_for(address.get());
    proof = UniqueFd(accept4(address.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    send_hello(proof.get(), random_value<uint64_t>());
    for (;;) {
      const ControlMessage message = receive(proof.get());
      if (message.header.kind != MessageKind::claim) continue;
      demand(message.header.connection_id == nonce, "the victim asks for another link");
      send_message(proof.get(), {.kind = MessageKind::claimed, .connection_id = nonce});
      return;
    }
  }

  // The region table, and an arena under this id.
  void grant() {
    const AccessGrant nowhere{.probe_addr = 0, .probe_token = 0};
    send({.kind = MessageKind::access,
          .private_data = {reinterpret_cast<const uint8_t*>(&nowhere), sizeof nowhere},
          .fds = {table_fd.get(), -1}});
  }
  void send_arena(uint64_t id, int fd) {
    send({.kind = MessageKind::arena, .argument = id, .fds = {fd, -1}});
  }
  void publish(uint32_t key, uint64_t addr, uint64_t length, uint32_t access, uint32_t arena,
               uint64_t offset) {
    soft::RegionEntry& entry = entries()[key & (soft::kRegionSlots - 1)];
    entry.key.store(0);
    entry.scope = soft::window_scope(kQp);
    entry.addr = addr;
    entry.length = length;
    entry.access = access;
    entry.arena = arena;
    entry.arena_offset = offset;
    entry.key.store(key);
  }

  ControlMessage next() { return receive(socket.get()); }
  bool is_cut_off() {
    for (;;) {
      wait_for(socket.get());
      ControlMessage message;
      const Received received = receive_message(socket.get(), message);
      if (received == Received::closed) return true;
      if (received == Received::nothing) return false;
    }
  }

 private:
  void send_hello(int to, uint64_t number) {
    Hello hello{.gid = {}, .nonce = number};
    std::memcpy(hello.gid, gid.data(), gid.size());
    demand(
        send_message(to, {.kind = MessageKind::hello,
                          .private_data = {reinterpret_cast<uint8_t*>(&hello), sizeof hello}}) == Sent::done,
        "hello");
  }
  static void wait_for(int fd) {
    pollfd ready{fd, POLLIN, 0};
    demand(poll(&ready, 1, kTimeoutMs) == 1, "the victim is silent");
  }
  static ControlMessage receive(int fd) {
    ControlMessage message;
    wait_for(fd);
    demand(receive_message(fd, message) == Received::message, "the victim closed the link");
    return message;
  }
};

inline void connect(Victim& victim, Peer& peer) {
  peer.hello();
  peer.attach(victim.qp->number());
  victim.connect_to(peer.gid);
}

// A peer whose queue pair is connected with the victim's.
struct ConnectedPeer : Peer {
  explicit ConnectedPeer(Victim& victim) : Peer(victim.gid()) { connect(victim, *this); }
};

}  // namespace hostile
