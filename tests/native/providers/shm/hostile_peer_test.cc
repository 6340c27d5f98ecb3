// A peer process that follows the control protocol and then sends invalid data: garbage in rings, impossible
// acknowledgements, malformed messages, descriptors that could be shrunk. The victim reports a status and
// continues.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <random>

#include "check.h"
#include "providers/shm/control.h"
#include "providers/shm/link.h"
#include "providers/shm/provider.h"
#include "providers/shm/ring_layout.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"
#include "util/random.h"

using namespace verbena;
using namespace verbena::shm;

namespace {

constexpr uint32_t kHostileQp = 77;
constexpr uint64_t kTimeoutNs = 5'000'000'000;

bool sent(Sent result) { return result == Sent::done; }

struct Victim {
  std::shared_ptr<Context> context = make_provider()->open("");
  std::shared_ptr<ProtectionDomain> pd = context->alloc_pd();
  std::shared_ptr<CompletionQueue> cq = context->create_cq(1024);
  std::shared_ptr<QueuePair> qp = pd->create_qp({.send_cq = cq, .recv_cq = cq});
  std::shared_ptr<Memory> memory = context->allocate(1 << 16, false);
  std::shared_ptr<MemoryRegion> region =
      pd->register_memory(memory->data(), memory->size(), access::all, false);
  Sge piece{reinterpret_cast<uint64_t>(memory->data()), 4096, region->lkey()};

  ~Victim() { qp->close(); }
  Gid gid() const { return context->query().ports[0].gids[0]; }

  void connect_to(const Gid& peer) {
    soft::move_to_init(*qp);
    soft::move_to_rts(*qp, {.dest_gid = peer, .dest_qp_num = kHostileQp});
  }

  Completion wait() {
    Completion completion;
    const uint64_t began = now_ns();
    while (cq->poll({&completion, 1}) == 0) CHECK(now_ns() - began < kTimeoutNs);
    return completion;
  }
};

struct HostilePeer {
  UniqueFd socket;
  Gid gid{0xfd, 1, 2, 3};
  UniqueFd own_ring = make_memfd("hostile", sizeof(RingSegment), false);
  Mapping own{own_ring.get(), sizeof(RingSegment), true};
  Mapping theirs;

  explicit HostilePeer(const Gid& victim) : socket(dial(node_address(victim))) {
    CHECK(bool(socket));
    const auto random = random_value<uint64_t>();
    std::memcpy(gid.data() + 8, &random, sizeof random);
    ring()->header.magic = kRingMagic;
    ring()->header.responder.store(static_cast<uint32_t>(Responder::ready));
  }

  RingSegment* ring() { return reinterpret_cast<RingSegment*>(own.data()); }       // victim → hostile peer
  RingSegment* target() { return reinterpret_cast<RingSegment*>(theirs.data()); }  // hostile peer → victim

  void hello() {
    const UniqueFd table = make_memfd("hostile", soft::kRegionTableBytes, false);
    const EventFd bell;
    Hello hello{};
    std::memcpy(hello.gid, gid.data(), gid.size());
    CHECK(sent(send_message(socket.get(), {.kind = MessageKind::hello,
                                           .private_data = {reinterpret_cast<uint8_t*>(&hello), sizeof hello},
                                           .fds = {table.get(), bell.get()}})));
  }

  // Exchanges rings with the victim's QP.
  void attach(uint32_t victim_qp) {
    CHECK(sent(send_message(socket.get(), {.kind = MessageKind::attach,
                                           .from_qp = kHostileQp,
                                           .to_qp = victim_qp,
                                           .fds = {own_ring.get(), -1}})));
    for (;;) {
      ControlMessage message = next();
      if (message.header.kind != MessageKind::attached) continue;
      CHECK(bool(message.fds[0]));
      theirs = Mapping(message.fds[0].get(), sizeof(RingSegment), true);
      return;
    }
  }

  ControlMessage next() {
    ControlMessage message;
    pollfd ready{socket.get(), POLLIN, 0};
    CHECK(poll(&ready, 1, 5000) == 1);
    CHECK(receive_message(socket.get(), message) == Received::message);
    return message;
  }

  bool is_cut_off() {
    for (;;) {
      pollfd ready{socket.get(), POLLIN, 0};
      CHECK(poll(&ready, 1, 5000) == 1);
      ControlMessage message;
      const Received received = receive_message(socket.get(), message);
      if (received == Received::closed) return true;
      if (received == Received::nothing) return false;
    }
  }
};

void connect(Victim& victim, HostilePeer& hostile) {
  hostile.hello();
  hostile.attach(victim.qp->number());
  victim.connect_to(hostile.gid);
}

void check_still_serving(Victim& victim) {
  HostilePeer another(victim.gid());
  another.hello();
  CHECK(another.next().header.kind == MessageKind::hello);
}

}  // namespace

TEST("random slots break the queue pair at most, and never touch memory outside the receive") {
  std::mt19937_64 random(2024);
  for (int round = 0; round < 300; ++round) {
    Victim victim;
    HostilePeer hostile(victim.gid());
    connect(victim, hostile);
    std::memset(victim.memory->data(), 0x5a, victim.memory->size());
    const RecvRequest receive{1, {&victim.piece, 1}};
    CHECK(victim.qp->post_recv({&receive, 1}).accepted == 1);
    for (uint64_t i = 0; i < 4; ++i) {
      Slot& slot = hostile.target()->slots[i];
      for (size_t word = 0; word < sizeof slot.header / 8; ++word) {
        const uint64_t value = random();
        std::memcpy(reinterpret_cast<std::byte*>(&slot.header) + word * 8, &value, 8);
      }
      if (round % 2) {  // plausible enough to pass the first checks
        slot.header.acknowledged = 0;
        slot.header.kind = static_cast<SlotKind>(random() % 7);
        slot.header.length = static_cast<uint32_t>(random() % (2 * kFragmentBytes));
      }
      slot.sequence.store(i + 1, std::memory_order_release);
    }
    Completion completions[8];
    for (int poll = 0; poll < 3; ++poll) victim.cq->poll(completions);
    for (size_t i = victim.piece.length; i < victim.memory->size(); ++i) {
      CHECK(victim.memory->data()[i] == std::byte{0x5a});
    }
  }
}

TEST("an acknowledgement of more than was sent fails the request") {
  Victim victim;
  HostilePeer hostile(victim.gid());
  connect(victim, hostile);
  hostile.ring()->header.consumed.store(UINT64_MAX);
  const SendRequest request{.id = 5, .local = {&victim.piece, 1}};
  CHECK(victim.qp->post_send({&request, 1}).accepted == 1);
  const Completion completion = victim.wait();
  CHECK(completion.id == 5 && completion.status == Status::bad_resp_err);
  CHECK(victim.qp->state() == QpState::err);
}

TEST("a failure report with an impossible status or slot fails the request") {
  for (const uint32_t status : {uint32_t{200}, uint32_t{10}}) {
    Victim victim;
    HostilePeer hostile(victim.gid());
    connect(victim, hostile);
    hostile.ring()->header.failed_slot.store(99);
    hostile.ring()->header.failed_status.store(status);
    const SendRequest request{.id = 6, .local = {&victim.piece, 1}};
    CHECK(victim.qp->post_send({&request, 1}).accepted == 1);
    CHECK(victim.wait().status == Status::bad_resp_err);
  }
}

TEST("a region table that points outside an arena gives no access") {
  Victim victim;
  HostilePeer hostile(victim.gid());
  connect(victim, hostile);
  // The hostile peer's table is empty: every key is unknown.
  const SendRequest request{
      .id = 7, .opcode = Opcode::write, .rkey = 1234, .remote_addr = 0, .local = {&victim.piece, 1}};
  hostile.ring()->header.access_flags.store(access::all);
  CHECK(victim.qp->post_send({&request, 1}).accepted == 1);
  CHECK(victim.wait().status == Status::rem_access_err);
}

TEST("a peer that dies holding a half-sent message leaves a flushed receive, not a hang") {
  Victim victim;
  {
    HostilePeer hostile(victim.gid());
    connect(victim, hostile);
    const RecvRequest receive{9, {&victim.piece, 1}};
    CHECK(victim.qp->post_recv({&receive, 1}).accepted == 1);
    Slot& slot = hostile.target()->slots[0];
    slot.header = {.acknowledged = 0,
                   .payload_at = 0,
                   .length = 100,
                   .immediate = 0,
                   .kind = SlotKind::send,
                   .flags = slot_flag::first,
                   .rnr_retry = 7,
                   .opcode = static_cast<uint8_t>(Opcode::send),
                   .rkey = 0};
    slot.sequence.store(1, std::memory_order_release);
    Completion none;
    CHECK(victim.cq->poll({&none, 1}) == 0);
  }
  const Completion completion = victim.wait();
  CHECK(completion.id == 9 && completion.status == Status::wr_flush_err);
  CHECK(victim.qp->state() == QpState::err);
}

TEST("malformed control messages close the link and nothing else") {
  std::mt19937_64 random(99);
  Victim victim;
  for (int round = 0; round < 200; ++round) {
    HostilePeer hostile(victim.gid());
    if (round % 2) hostile.hello();
    uint8_t bytes[700];
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    if (round % 3 == 0) {  // a valid header with a random kind and lengths
      ControlHeader header{};
      header.magic = kControlMagic;
      header.version = static_cast<uint16_t>(random() % 3);
      header.kind = static_cast<MessageKind>(random() % 16);
      header.private_length = static_cast<uint16_t>(random() % 64);
      std::memcpy(bytes, &header, sizeof header);
    }
    const size_t length = 1 + random() % sizeof bytes;
    CHECK(send(hostile.socket.get(), bytes, length, MSG_NOSIGNAL) > 0);
  }
  check_still_serving(victim);
}

TEST("a ring that could be shrunk is refused") {
  Victim victim;
  HostilePeer hostile(victim.gid());
  hostile.hello();
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  CHECK(ftruncate(unsealed.get(), sizeof(RingSegment)) == 0);
  CHECK(sent(send_message(hostile.socket.get(), {.kind = MessageKind::attach,
                                                 .from_qp = kHostileQp,
                                                 .to_qp = victim.qp->number(),
                                                 .fds = {unsealed.get(), -1}})));
  for (;;) {
    const ControlMessage message = hostile.next();
    if (message.header.kind != MessageKind::attached) continue;
    CHECK(message.header.argument == 1 && !message.fds[0]);
    break;
  }
}

TEST("an arena that could be shrunk, or another protocol version, closes the link") {
  Victim victim;
  {
    HostilePeer hostile(victim.gid());
    hostile.hello();
    const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
    CHECK(ftruncate(unsealed.get(), 4096) == 0);
    CHECK(sent(send_message(hostile.socket.get(),
                            {.kind = MessageKind::arena, .argument = 1, .fds = {unsealed.get(), -1}})));
    CHECK(hostile.is_cut_off());
  }
  {
    HostilePeer hostile(victim.gid());
    ControlHeader header{};
    header.magic = kControlMagic;
    header.version = kControlVersion + 1;
    header.kind = MessageKind::hello;
    CHECK(send(hostile.socket.get(), &header, sizeof header, MSG_NOSIGNAL) == sizeof header);
    CHECK(hostile.is_cut_off());
  }
  check_still_serving(victim);
}

RUN_TESTS()
