// A peer process that follows the control protocol and then sends invalid data: garbage in rings, impossible
// acknowledgements, malformed messages, descriptors that could be shrunk. The victim reports a status and
// continues.
#include <fcntl.h>

#include <atomic>
#include <random>

#include "check.h"
#include "shm_hostile_peer.h"

using namespace hostile;
using HostilePeer = hostile::Peer;

namespace {

constexpr uint64_t kAddress = 0x7000'0000'0000, kBytes = 1 << 16;  // of the memory that the peer publishes

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
    ConnectedPeer hostile(victim);
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
  ConnectedPeer hostile(victim);
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
    ConnectedPeer hostile(victim);
    hostile.ring()->header.failed_slot.store(99);
    hostile.ring()->header.failed_status.store(status);
    const SendRequest request{.id = 6, .local = {&victim.piece, 1}};
    CHECK(victim.qp->post_send({&request, 1}).accepted == 1);
    CHECK(victim.wait().status == Status::bad_resp_err);
  }
}

TEST("an empty region table gives no access") {
  Victim victim;
  ConnectedPeer hostile(victim);
  hostile.grant();
  // The hostile peer's table is empty: every key is unknown.
  CHECK(victim.post(Opcode::write, 1234, 0, 4096));
  CHECK(victim.wait().status == Status::rem_access_err);
}

TEST("a peer that dies holding a half-sent message leaves a flushed receive, not a hang") {
  Victim victim;
  {
    ConnectedPeer hostile(victim);
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
      header.version = static_cast<uint16_t>(random() % (kControlVersion + 2));
      header.kind = static_cast<MessageKind>(random() % 20);
      header.private_length = static_cast<uint16_t>(random() % 64);
      std::memcpy(bytes, &header, sizeof header);
    }
    const size_t length = 1 + random() % sizeof bytes;
    CHECK(::send(hostile.socket.get(), bytes, length, MSG_NOSIGNAL) > 0);
  }
  check_still_serving(victim);
}

TEST("a ring that could be shrunk is refused") {
  Victim victim;
  HostilePeer hostile(victim.gid());
  hostile.hello();
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  CHECK(ftruncate(unsealed.get(), sizeof(RingSegment)) == 0);
  hostile.send({.kind = MessageKind::attach,
                .from_qp = kQp,
                .to_qp = victim.qp->number(),
                .fds = {unsealed.get(), -1}});
  hostile.prove();
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
    hostile.send_arena(1, unsealed.get());
    CHECK(hostile.is_cut_off());
  }
  {
    HostilePeer hostile(victim.gid());
    ControlHeader header{};
    header.magic = kControlMagic;
    header.version = kControlVersion + 1;
    header.kind = MessageKind::hello;
    CHECK(::send(hostile.socket.get(), &header, sizeof header, MSG_NOSIGNAL) == sizeof header);
    CHECK(hostile.is_cut_off());
  }
  check_still_serving(victim);
}

// Region tables and arenas that contradict each other

TEST("memory that is only readable is not written, whatever its key allows") {
  Victim victim;
  ConnectedPeer hostile(victim);
  const UniqueFd arena = make_memfd("hostile", kBytes, false);
  CHECK(fcntl(arena.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0);
  hostile.grant();
  hostile.send_arena(1, arena.get());
  hostile.publish(kKey, kAddress, kBytes, access::all, 1, 0);
  CHECK(victim.post(Opcode::read, kKey, kAddress, 4096));
  CHECK(victim.wait().status == Status::success);
  CHECK(victim.post(Opcode::write, kKey, kAddress, 4096));
  CHECK(victim.wait().status == Status::rem_access_err);
}

TEST("entries that leave their arena fail the request") {
  const struct {
    uint64_t length, offset, at;
  } entries[] = {{kBytes, kBytes - 4, 0},
                 {kBytes, kBytes, 0},
                 {kBytes, UINT64_MAX - 100, 0},
                 {UINT64_MAX, 0, uint64_t{1} << 40}};
  for (const auto& [length, offset, at] : entries) {
    for (const Opcode opcode : {Opcode::read, Opcode::write, Opcode::fetch_add}) {
      Victim victim;
      ConnectedPeer hostile(victim);
      const UniqueFd arena = make_memfd("hostile", kBytes, false);
      hostile.grant();
      hostile.send_arena(1, arena.get());
      hostile.publish(kKey, kAddress, length, access::all, 1, offset);
      CHECK(victim.post(opcode, kKey, kAddress + at, opcode == Opcode::fetch_add ? 8 : 8192));
      CHECK(victim.wait().status == Status::bad_resp_err);
    }
  }
}

TEST("an atomic at a place that is not aligned in the arena fails") {
  for (const Opcode opcode : {Opcode::fetch_add, Opcode::compare_swap}) {
    Victim victim;
    ConnectedPeer hostile(victim);
    const UniqueFd arena = make_memfd("hostile", kBytes, false);
    hostile.grant();
    hostile.send_arena(1, arena.get());
    hostile.publish(kKey, kAddress, 4096, access::all, 1, 61);
    CHECK(victim.post(opcode, kKey, kAddress, 8));
    CHECK(victim.wait().status == Status::bad_resp_err);
  }
}

TEST("a key in an arena that never comes fails the request, not the program") {
  Victim victim;
  ConnectedPeer hostile(victim);
  hostile.grant();
  hostile.publish(kKey, kAddress, kBytes, access::all, 9, 0);
  CHECK(victim.post(Opcode::read, kKey, kAddress, 4096));
  CHECK(victim.wait().status == Status::retry_exc_err);
}

TEST("arenas that are withdrawn, replaced and sent twice while they are read") {
  Victim victim;
  ConnectedPeer hostile(victim);
  hostile.grant();
  const UniqueFd large = make_memfd("hostile", kBytes, false), small = make_memfd("hostile", 4096, false);
  hostile.send_arena(1, large.get());
  hostile.publish(kKey, kAddress, kBytes, access::all, 1, 0);
  std::atomic<bool> over{false};
  std::thread changes([&] {
    for (int round = 0; round < 300; ++round) {
      const uint64_t id = round % 3 ? 1 : 1 + kMaxArenas;  // both have the same place in the victim's table
      hostile.send_arena(1, large.get());
      hostile.send({.kind = MessageKind::arena_gone, .argument = 1});
      hostile.send({.kind = MessageKind::arena_gone, .argument = 1});
      hostile.send_arena(id, small.get());
      hostile.send({.kind = MessageKind::arena_gone, .argument = id});
      hostile.send_arena(1, large.get());
      std::this_thread::yield();
    }
    over = true;
  });
  uint64_t reads = 0;
  for (; !over && victim.qp->state() == QpState::rts; ++reads) {
    if (!victim.post(reads % 2 ? Opcode::read : Opcode::write, kKey, kAddress + 8192, 4096)) break;
    victim.wait();
  }
  changes.join();
  CHECK(reads > 0);
}

TEST("a table that changes while it is used") {
  Victim victim;
  ConnectedPeer hostile(victim);
  hostile.grant();
  const UniqueFd arena = make_memfd("hostile", kBytes, false);
  hostile.send_arena(1, arena.get());
  hostile.publish(kKey, kAddress, kBytes, access::all, 1, 0);
  std::atomic<bool> over{false};
  std::thread changes([&] {
    soft::RegionEntry& entry = hostile.entries()[kKey & (soft::kRegionSlots - 1)];
    std::mt19937_64 random(7);
    while (!over) {
      // Volatile: as another process writes it.
      *const_cast<volatile uint64_t*>(&entry.arena_offset) = random() % 2 ? 0 : random() % (2 * kBytes);
      *const_cast<volatile uint64_t*>(&entry.length) = random() % 2 ? kBytes : random();
      *const_cast<volatile uint32_t*>(&entry.arena) = random() % 8 ? 1 : 2;
    }
  });
  for (int i = 0; i < 20'000 && victim.qp->state() == QpState::rts; ++i) {
    if (!victim.post(Opcode::read, kKey, kAddress + 4096, 4096)) break;
    victim.wait();
  }
  over = true;
  changes.join();
}

TEST("a staged request with a key of another queue pair is refused") {
  for (const bool own : {true, false}) {
    Victim victim;
    const auto lent =
        victim.pd->register_memory(victim.memory->data(), 4096, access::local_write | access::window, false);
    HostilePeer owner(victim.gid()), thief(victim.gid());
    connect(victim, owner);
    const auto other = victim.pd->create_qp({.send_cq = victim.cq, .recv_cq = victim.cq});
    thief.hello();
    thief.attach(other->number());
    soft::move_to_init(*other);
    soft::move_to_rts(*other, {.dest_gid = thief.gid, .dest_qp_num = kQp});
    const auto window = victim.pd->bind_window(lent, access::remote_read, own ? other : victim.qp);
    std::memset(victim.memory->data(), 0x5a, 4096);
    RingSegment* ring = thief.target();
    Slot& slot = ring->slots[0];
    slot.header = {.acknowledged = 0,
                   .payload_at = 0,
                   .length = 64,
                   .immediate = 0,
                   .kind = SlotKind::staged_read,
                   .flags = slot_flag::first | slot_flag::last,
                   .rnr_retry = 7,
                   .opcode = static_cast<uint8_t>(Opcode::read),
                   .rkey = window->rkey()};
    const StagedOperands operands{victim.piece.addr, 0, 0};
    std::memcpy(slot.bytes, &operands, sizeof operands);
    slot.sequence.store(1, std::memory_order_release);
    const uint64_t began = now_ns();
    Completion none;
    while (ring->header.consumed.load() == 0 && ring->header.failed_status.load() == 0) {
      victim.cq->poll({&none, 1});
      CHECK(now_ns() - began < 5'000'000'000);
    }
    CHECK(ring->payload[0] == (own ? std::byte{0x5a} : std::byte{0}));
    CHECK(ring->header.failed_status.load() == (own ? 0u : static_cast<uint32_t>(Status::rem_access_err)));
    other->close();
  }
}

TEST("sparse files that would take all addresses close the link") {
  Victim victim;
  HostilePeer hostile(victim.gid());
  hostile.hello();
  const UniqueFd huge = make_memfd("hostile", size_t{1} << 42, false);
  for (uint64_t id = 1; id <= 3; ++id) hostile.send_arena(id, huge.get());
  CHECK(hostile.is_cut_off());
  check_still_serving(victim);
}

TEST("a peer that claims the GID of another process is cut off") {
  Victim victim, named;
  HostilePeer hostile(victim.gid());
  hostile.gid = named.gid();
  hostile.hello();
  hostile.send({.kind = MessageKind::attach,
                .from_qp = named.qp->number(),
                .to_qp = victim.qp->number(),
                .fds = {hostile.own_ring.get(), -1}});
  CHECK(hostile.is_cut_off());
}

RUN_TESTS()
