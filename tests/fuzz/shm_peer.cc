// A queue pair whose peer process is hostile: it sends any control message with any descriptor, publishes any
// region table and writes anything into both rings. The victim does not crash, bytes outside of its buffer do
// not change, and every posted request and receive completes exactly once.
#include <fcntl.h>

#include "fuzz.h"
#include "shm_hostile_peer.h"

using namespace hostile;

namespace {

constexpr size_t kBuffer = 4096;
constexpr uint64_t kAddress = 0x7000'0000'0000;
constexpr std::byte kGuard{0x5a};

enum Step : uint8_t {
  send_control,
  send_garbage,
  publish_entry,
  write_header,
  write_slot,
  post_request,
  post_receive,
  poll_once,
  kSteps
};

// Numbers near those that the victim checks, or any.
uint64_t number(fuzz::Input& input) {
  constexpr uint64_t kChosen[] = {
      0,         1,          8,        61,         4095,           4096,
      65'536,    kMaxArenas, kAddress, UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 43,
      UINT32_MAX};
  const uint8_t choice = input.byte();
  return choice < std::size(kChosen) ? kChosen[choice] : input.number<uint64_t>() >> (choice % 64);
}

// What a peer may attach to a message.
class Descriptors {
 public:
  Descriptors() {
    arenas_[0] = make_memfd("hostile", 65'536, false);
    arenas_[1] = make_memfd("hostile", 65'536, false);
    REQUIRE(fcntl(arenas_[1].get(), F_ADD_SEALS, F_SEAL_WRITE) == 0);
    arenas_[2] = UniqueFd(memfd_create("unsealed", MFD_CLOEXEC));
    REQUIRE(ftruncate(arenas_[2].get(), 65'536) == 0);
    arenas_[3] = make_memfd("sparse", size_t{1} << 42, false);
    arenas_[4] = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  int any(uint8_t choice, const Peer& peer) const {
    if (choice % 8 == 0) return -1;
    if (choice % 8 == 6) return peer.table_fd.get();
    if (choice % 8 == 7) return peer.own_ring.get();
    return arenas_[choice % 8 - 1].get();
  }

 private:
  UniqueFd arenas_[5];
};

struct Rig {
  std::shared_ptr<Context> context = make_provider()->open("");
  Descriptors descriptors;
};

class Play {
 public:
  explicit Play(Rig& rig) : rig_(rig), victim_(rig.context), peer_(victim_.gid()) {
    std::memset(victim_.memory->data(), static_cast<int>(kGuard), victim_.memory->size());
    connect(victim_, peer_);
    peer_.grant();
    peer_.send_arena(1, rig.descriptors.any(1, peer_));
    peer_.publish(kKey, kAddress, 65'536, access::all, 1, 0);
  }

  void step(uint8_t step, fuzz::Input& input) {
    if (step == send_control) return control(input);
    if (step == send_garbage) {
      const fuzz::Bytes bytes = input.take(1 + input.byte());
      if (!bytes.empty()) ::send(peer_.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (step == publish_entry) {
      const uint32_t key = input.byte() & 1 ? kKey : kOtherKey, access = input.byte() & access::all;
      const uint64_t addr = number(input), length = number(input), arena = number(input);
      peer_.publish(key, addr, length, access, static_cast<uint32_t>(arena), number(input));
    }
    if (step == write_header) header(input);
    if (step == write_slot) slot(input);
    if (step == post_request) request(input);
    if (step == post_receive) {
      const Sge piece{victim_.piece.addr, input.number<uint16_t>() % uint32_t{kBuffer}, victim_.piece.lkey};
      const RecvRequest receive{.id = 2, .local = {&piece, 1}};
      posted_ += victim_.qp->post_recv({&receive, 1}).accepted;
    }
    collect();
  }

  void end() {
    collect();
    if (victim_.qp->state() != QpState::err) victim_.qp->modify({.state = QpState::err});
    for (int i = 0; i < 1000 && finished_ < posted_; ++i) collect();
    REQUIRE(finished_ == posted_);
    const std::byte* memory = victim_.memory->data();
    for (size_t i = kBuffer; i < victim_.memory->size(); ++i) REQUIRE(memory[i] == kGuard);
  }

 private:
  void control(fuzz::Input& input) {
    const auto kind = static_cast<MessageKind>(input.byte() % 18);
    const uint8_t first = input.byte(), second = input.byte(), private_bytes = input.byte() % 64;
    const uint32_t to_qp = input.byte() & 1 ? victim_.qp->number() : static_cast<uint32_t>(number(input));
    const uint64_t connection_id = input.byte() & 1 ? peer_.nonce : number(input);
    const uint64_t argument = number(input);
    const fuzz::Bytes data = input.take(private_bytes);
    const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
    send_message(peer_.socket.get(), {.kind = kind,
                                      .from_qp = kQp,
                                      .to_qp = to_qp,
                                      .connection_id = connection_id,
                                      .argument = argument,
                                      .private_data = {bytes, data.size()},
                                      .fds = {rig_.descriptors.any(first, peer_),
                                              first % 8 ? rig_.descriptors.any(second, peer_) : -1}});
  }

  // The ring that the victim writes into: its fields are the peer's.
  void header(fuzz::Input& input) {
    RingHeader& own = peer_.ring()->header;
    const uint8_t field = input.byte() % 9;
    const uint64_t value = number(input);
    const auto word = static_cast<uint32_t>(value);
    if (field == 0) own.consumed.store(value);
    if (field == 1) own.failed_slot.store(value);
    if (field == 2) own.failed_status.store(word);
    if (field == 3) own.responder.store(word % 4);
    if (field == 4) own.protection_domain.store(word);
    if (field == 5) own.access_flags.store(word);
    if (field == 6) own.stalled.store(word);
    if (field == 7) own.doorbell_armed.store(word);
    if (field == 8) peer_.target()->header.access_epoch.store(value & ~uint64_t{1});
  }

  void slot(fuzz::Input& input) {
    Slot& slot = peer_.target()->slots[written_ % kSlotCount];
    SlotHeader header{};
    header.acknowledged = number(input);
    header.payload_at = number(input);
    header.length = static_cast<uint32_t>(number(input));
    header.kind = static_cast<SlotKind>(input.byte() % 6);
    header.flags = input.byte();
    header.rnr_retry = input.byte() % 8;
    header.opcode = input.byte() % 9;
    header.rkey = input.byte() & 1 ? victim_.region->rkey() : kKey;
    const StagedOperands operands{
        .remote_addr = input.byte() & 1 ? victim_.piece.addr : number(input), .compare_add = 1, .swap = 2};
    // The region gives the peer the whole memory: the guard is only for what the victim itself must not
    // touch.
    if (header.rkey == victim_.region->rkey() && header.kind >= SlotKind::staged_write &&
        (operands.remote_addr != victim_.piece.addr || header.length > kBuffer)) {
      header.rkey = kOtherKey;
    }
    std::memcpy(&slot.header, &header, sizeof header);
    std::memcpy(slot.bytes, &operands, sizeof operands);
    slot.sequence.store(++written_, std::memory_order_release);
  }

  void request(fuzz::Input& input) {
    const auto opcode = static_cast<Opcode>(input.byte() % (static_cast<int>(Opcode::fetch_add) + 1));
    const uint32_t length = opcode > Opcode::read ? 8 : input.number<uint16_t>() % uint32_t{kBuffer};
    const uint64_t at = input.byte() & 1 ? kAddress : number(input);
    posted_ += victim_.post(opcode, input.byte() & 1 ? kKey : kOtherKey, at, length) ? 1 : 0;
  }

  void collect() {
    Completion done[8];
    finished_ += victim_.cq->poll(done);
    REQUIRE(finished_ <= posted_);
    ControlMessage ignored;  // what the victim sends
    while (receive_message(peer_.socket.get(), ignored) == Received::message) continue;
  }

  Rig& rig_;
  Victim victim_;
  Peer peer_;
  uint64_t written_ = 0;
  size_t posted_ = 0, finished_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static Rig rig;
  fuzz::Input input(bytes, size);
  Play play(rig);
  for (int steps = 0; !input.empty() && steps < 100; ++steps) play.step(input.byte() % kSteps, input);
  play.end();
  return 0;
}

namespace {

fuzz::Script& post(fuzz::Script& script, Opcode opcode) {
  script.byte(post_request).byte(static_cast<unsigned>(opcode));
  if (opcode <= Opcode::read) script.number(uint16_t{3000});
  return script.byte(1).byte(1);
}

fuzz::Script& entry(fuzz::Script& script, unsigned length, unsigned arena, unsigned offset) {
  return script.byte(publish_entry).byte(1).byte(access::all).byte(8).byte(length).byte(arena).byte(offset);
}

fuzz::Script& arena(fuzz::Script& script, MessageKind kind, unsigned descriptor) {
  script.byte(send_control).byte(static_cast<unsigned>(kind)).byte(descriptor).byte(0).byte(0);
  return script.byte(1).byte(1).byte(1);
}

}  // namespace

SEED("one-of-each-request") {
  for (const Opcode opcode :
       {Opcode::send, Opcode::write, Opcode::read, Opcode::fetch_add, Opcode::compare_swap})
    post(script, opcode);
  script.byte(write_header).byte(0).byte(1).byte(poll_once);
}

SEED("entries-outside-their-arena") {
  for (const unsigned offset : {3u, 6u, 9u, 10u}) post(entry(script, 6, 1, offset), Opcode::fetch_add);
  post(entry(script, 9, 1, 0), Opcode::read);
}

SEED("arena-withdrawn-and-replaced") {
  post(script, Opcode::read);
  arena(script, MessageKind::arena_gone, 0);
  post(script, Opcode::read);
  arena(script, MessageKind::arena, 2);
  post(script, Opcode::write);
  arena(script, MessageKind::arena, 3);
}

SEED("slots-of-each-kind") {
  script.byte(post_receive).number(uint16_t{4000});
  for (unsigned kind = 0; kind < 6; ++kind) {
    script.byte(write_slot).byte(0).byte(0).byte(2).byte(kind).byte(7).byte(7).byte(kind).byte(1).byte(1);
    script.byte(poll_once);
  }
}

SEED("garbage-closes-the-link") {
  script.byte(send_garbage).byte(60);
  for (int i = 0; i < 61; ++i) script.byte(0xff);
  post(script, Opcode::read);
}
