// A whole queue pair behind a socket whose peer sends arbitrary bytes: memory outside the region is never
// touched, and every posted request and receive completes exactly once.
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "fuzz.h"
#include "iwarp_peer_script.h"
#include "providers/iwarp/context.h"
#include "providers/iwarp/provider.h"
#include "providers/iwarp/queue_pair.h"
#include "providers/soft/qp_states.h"

using namespace verbena;
using namespace verbena::iwarp;
using fuzz::Bytes;

namespace {

constexpr size_t kRegion = 40'000;
constexpr uint32_t kDepth = 16;

enum Step : uint8_t {  // follow those of fuzz::PeerScript
  post_receive = fuzz::PeerScript::kKinds,
  post_request,
  drop_region,
  poll_once,
  end_stream,
  kSteps
};

struct Rig {
  std::shared_ptr<Context> context = make_provider()->open("lo");
  std::shared_ptr<ProtectionDomain> domain = context->alloc_pd();
};

class Session {
 public:
  Session(Rig& rig, uint8_t flags, uint8_t ird)
      : sends_(rig.context->create_cq(64)),
        receives_(rig.context->create_cq(64)),
        qp_(rig.domain->create_qp({.send_cq = sends_,
                                   .recv_cq = receives_,
                                   .limits = {.max_send = kDepth, .max_recv = kDepth},
                                   .signal_all = true})),
        region_(rig.domain->register_memory(memory_.data(), memory_.size(), access::all, false)),
        agreement_{.initiator = (flags & 1) != 0,
                   .crc = (flags & 2) != 0,
                   .acknowledged = (flags & 4) != 0,
                   .rtr = static_cast<Rtr>(flags >> 3 & 3),
                   .peer_ird = 4},
        script_(agreement_.crc, {.stag = region_->rkey(), .base = at(0), .size = kRegion}) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peer_ = UniqueFd(ends[0]);
    soft::move_to_init(*qp_);
    auto& iwarp = static_cast<IwarpQueuePair&>(*qp_);
    REQUIRE(iwarp.adopt(net::StreamSocket(UniqueFd(ends[1])), agreement_, ird, {}));
    soft::move_to_rts(*qp_, {.path_mtu = 4096,
                             .max_rd_atomic = 4,
                             .max_dest_rd_atomic = 4,
                             .min_rnr_timer = 1,
                             .retry_count = 7,
                             .rnr_retry = static_cast<uint8_t>(flags >> 5)});
  }

  void step(uint8_t step, fuzz::Input& input) {
    if (step < fuzz::PeerScript::kKinds) return send(script_.next(step, input));
    if (step == post_receive) receive(input.number<uint16_t>());
    if (step == post_request) request(input);
    if (step == drop_region) region_->close();
    if (step == end_stream) shutdown(peer_.get(), SHUT_WR);
    collect();
  }

  void end() {
    collect();
    if (qp_->state() != QpState::err) qp_->modify({.state = QpState::err});
    for (int i = 0; i < 1000 && (sent_ != finished_ || posted_ != received_); ++i) collect();
    REQUIRE(sent_ == finished_ && posted_ == received_);
    qp_->close();
  }

 private:
  uint64_t at(uint64_t offset) const { return reinterpret_cast<uint64_t>(memory_.data()) + offset; }

  void send(const Bytes& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n =
          ::send(peer_.get(), bytes.data() + at, bytes.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return;
      if (n > 0) at += static_cast<size_t>(n);
      collect();
      if (n < 0 && qp_->state() == QpState::err) return;
    }
  }

  void receive(uint16_t length) {
    const Sge piece{at(0), length % uint32_t{kRegion}, region_->lkey()};
    const RecvRequest request{.id = 1, .local = {&piece, 1}};
    posted_ += qp_->post_recv({&request, 1}).accepted;
  }

  void request(fuzz::Input& input) {
    const auto opcode = static_cast<Opcode>(input.byte() % (static_cast<int>(Opcode::fetch_add) + 1));
    const uint32_t length = opcode > Opcode::read ? 8 : input.number<uint16_t>() % uint32_t{kRegion};
    const Sge piece{at(0), length, region_->lkey()};
    const SendRequest request{.id = 2, .opcode = opcode, .rkey = 7, .remote_addr = 64, .local = {&piece, 1}};
    sent_ += qp_->post_send({&request, 1}).accepted;
  }

  void collect() {
    Completion done[8];
    finished_ += sends_->poll(done);
    received_ += receives_->poll(done);
    REQUIRE(finished_ <= sent_ && received_ <= posted_);
    std::byte ignored[4096];  // what the queue pair sends
    while (::recv(peer_.get(), ignored, sizeof ignored, MSG_DONTWAIT) > 0) continue;
  }

  Bytes memory_ = fuzz::pattern(kRegion);
  std::shared_ptr<CompletionQueue> sends_, receives_;
  std::shared_ptr<QueuePair> qp_;
  std::shared_ptr<MemoryRegion> region_;
  const Agreement agreement_;
  fuzz::PeerScript script_;
  UniqueFd peer_;
  size_t sent_ = 0, finished_ = 0, posted_ = 0, received_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static Rig rig;
  fuzz::Input input(bytes, size);
  const uint8_t flags = input.byte(), ird = input.byte() % 8;
  Session play(rig, flags, ird);
  for (int steps = 0; !input.empty() && steps < 200; ++steps) play.step(input.byte() % kSteps, input);
  play.end();
  return 0;
}

namespace {

enum Terms : unsigned { initiator = 1, crc = 2, acknowledged = 4, patient = 7 << 5 };

fuzz::Script& post(fuzz::Script& script, Opcode opcode) {
  script.byte(post_request).byte(static_cast<unsigned>(opcode));
  return opcode > Opcode::read ? script : script.number(uint16_t{3000});
}

}  // namespace

SEED("responder-takes-everything") {
  script.byte(crc | acknowledged | patient).byte(4);
  for (int i = 0; i < 3; ++i) script.byte(post_receive).number(uint16_t{8000});
  fuzz::message(script, RdmapOpcode::send, true, 3000);
  fuzz::one_of_each(script, 0);
  script.byte(poll_once).byte(end_stream).byte(poll_once);
}

SEED("initiator-hears-its-answers") {
  script.byte(initiator | crc | acknowledged | patient).byte(4);
  for (const Opcode opcode : {Opcode::send, Opcode::read, Opcode::fetch_add, Opcode::write})
    post(script, opcode);
  script.byte(fuzz::PeerScript::tagged)
      .byte(static_cast<unsigned>(RdmapOpcode::read_response))
      .byte(1 | 2 | 4);
  script.number(uint32_t{1}).number(uint64_t{0}).number(uint16_t{3000});
  fuzz::control(script, RdmapOpcode::atomic_response).number(uint32_t{2}).number(uint64_t{9});
  fuzz::acknowledge(script, AckKind::executed, 0, 4, 0);
  post(script, Opcode::write_with_imm);
  fuzz::acknowledge(script, AckKind::failed, 10, 4, 5);
}

SEED("not-ready-and-again") {
  script.byte(initiator | crc | acknowledged | patient).byte(4);
  for (const Opcode opcode : {Opcode::send, Opcode::read, Opcode::write_with_imm}) post(script, opcode);
  fuzz::acknowledge(script, AckKind::not_ready, 0, 0, 0);
  post(script, Opcode::send);
  fuzz::acknowledge(script, AckKind::ready, 0, 0, 0);
  fuzz::acknowledge(script, AckKind::executed, 0, 1, 0);
  fuzz::acknowledge(script, AckKind::not_ready, 0, 3, 0);
  fuzz::acknowledge(script, AckKind::ready, 0, 3, 0);
  script.byte(poll_once);
}

SEED("region-dropped-under-a-read") {
  script.byte(initiator | acknowledged).byte(4);
  post(script, Opcode::read);
  script.byte(drop_region);
  script.byte(fuzz::PeerScript::tagged)
      .byte(static_cast<unsigned>(RdmapOpcode::read_response))
      .byte(1 | 2 | 4);
  script.number(uint32_t{0}).number(uint64_t{0}).number(uint16_t{3000});
  script.byte(poll_once);
}

SEED("terminated") {
  script.byte(initiator | crc).byte(1);
  post(script, Opcode::send);
  fuzz::control(script, RdmapOpcode::terminate).byte(4).byte(0x12).byte(2).byte(0).byte(0);
}
