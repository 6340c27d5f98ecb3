// Messages of a hostile peer at one session: any header, any payload, references to memory that is never
// sent, replies to calls that were or were not made. The node keeps a bounded part of its memory for them,
// and every own call ends at most once.
#include "fuzz.h"
#include "providers/registry.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"
#include "util/crc32c/crc32c.h"

using namespace verbena;
using namespace verbena::transport;

namespace {

constexpr uint32_t kWindow = 16, kLongest = 4096, kMaxServing = 8, kMaxWaiting = 8;
constexpr uint32_t kProgramsMethod = 777;  // served by the program, which never replies

// A node whose wire leads nowhere: what it sends is lost.
struct Victim {
  std::shared_ptr<Context> context = find_provider("fake")->open("");
  std::shared_ptr<ProtectionDomain> pd = context->alloc_pd();
  std::shared_ptr<CompletionQueue> cq = context->create_cq(1024);
  std::shared_ptr<SharedReceiveQueue> srq = pd->create_srq(256, 1);
  std::shared_ptr<Node> node = std::make_shared<Node>(NodeOptions{.busy_poll_us = 0});
  std::shared_ptr<Port> port = node->add_port(std::make_shared<Port>(
      context, pd, cq, srq,
      PortOptions{.name = "fake", .buffer_bytes = 512, .pool_buffers = 256, .window = kWindow}));

  static Victim& instance() {
    static Victim& victim = *new Victim;
    return victim;
  }

  std::shared_ptr<QueuePair> connect_to_nothing() {
    auto qp = pd->create_qp({.send_cq = cq, .recv_cq = cq, .srq = srq, .limits = {.max_send = 64}});
    QpAttributes wanted{.state = QpState::init,
                        .present = qp_attr::access_flags | qp_attr::pkey_index | qp_attr::port,
                        .access_flags = access::all};
    qp->modify(wanted);
    wanted.state = QpState::rtr;
    wanted.present = qp_attr::address | qp_attr::path_mtu | qp_attr::dest_qp_num | qp_attr::rq_psn |
                     qp_attr::max_dest_rd_atomic | qp_attr::min_rnr_timer;
    wanted.dest_gid = context->query().ports.at(0).gids.at(0);
    wanted.dest_qp_num = 1;
    wanted.max_dest_rd_atomic = 16;
    wanted.min_rnr_timer = 1;
    qp->modify(wanted);
    wanted.state = QpState::rts;
    wanted.present = qp_attr::sq_psn | qp_attr::timeout | qp_attr::retry_count | qp_attr::rnr_retry |
                     qp_attr::max_rd_atomic;
    wanted.max_rd_atomic = 16;
    qp->modify(wanted);
    return qp;
  }
};

// A message with a header that is likely to be taken, and a checksum that is right, most often.
fuzz::Bytes message(fuzz::Input& input, uint64_t next) {
  MessageHeader header;
  const uint8_t choice = input.byte();
  header.kind = static_cast<MessageKind>(choice % 9);
  header.flags = choice & 128 ? message_flag::by_reference : uint16_t{0};
  const uint8_t place = input.byte();
  header.sequence = place < 200 ? next : place < 220 ? 0 : next + place - 230;
  header.acknowledged = input.byte() % 4;
  header.call = input.byte() & 1 ? input.number<uint64_t>() : input.byte();
  const uint32_t methods[] = {method::echo,   method::resolve, method::verify, method::checksum,
                              method::atomic, kProgramsMethod, 12345};
  header.method = methods[input.byte() % std::size(methods)];
  fuzz::Bytes payload = header.flags ? input.take(sizeof(Reference)) : input.take(input.byte());
  if (header.flags) payload.resize(sizeof(Reference));
  header.length = static_cast<uint32_t>(payload.size());
  header.crc = message_crc(header, payload);
  if (input.byte() == 255) header.crc ^= 1;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  fuzz::Bytes all(bytes.begin(), bytes.end());
  all.insert(all.end(), payload.begin(), payload.end());
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  Victim& victim = Victim::instance();
  static uint64_t number = 0;
  const auto control = std::make_shared<EventQueue>(), requests = std::make_shared<EventQueue>();
  const std::shared_ptr<Session> session = victim.node->add_session({.id = ++number,
                                                                     .peer = "a hostile peer",
                                                                     .max_message_bytes = kLongest,
                                                                     .max_serving = kMaxServing,
                                                                     .max_waiting = kMaxWaiting},
                                                                    control, requests);
  const std::shared_ptr<QueuePair> qp = victim.connect_to_nothing();
  int ended = 0, called = 0;
  {
    const auto held = victim.node->lock();
    session->attach(std::make_unique<Link>(victim.port, qp), 0, 0, kWindow, 512);
    for (const fuzz::Bytes payload = fuzz::pattern(64); called < 3; ++called) {
      Operation* call = session->call(method::echo, payload);
      REQUIRE(call != nullptr);
      Session::then(*call, [&ended](Operation&) { ++ended; });
    }
    uint64_t done = 0, sent = 0;
    while (!input.empty() && session->link()) {
      const fuzz::Bytes one = message(input, sent + 1);
      MessageHeader header;
      std::memcpy(&header, one.data(), sizeof header);
      sent = std::max(sent, header.sequence == sent + 1 ? sent + 1 : sent);
      session->on_message(one);
      REQUIRE(session->sequence().done() >= done && session->sequence().done() <= sent);
      done = session->sequence().done();
      REQUIRE(session->serving() <= kMaxServing);
      REQUIRE(session->unacknowledged_bytes() <=
              3 * kLongest + (kMaxServing + kMaxWaiting) * 2 * 1025 + 3 * 64);
      REQUIRE(ended <= called);
    }
    session->lose_link(Status::success, "the input has ended", false);
  }
  qp->close();
  {
    const auto held = victim.node->lock();
    session->release_link();
    session->end("the input has ended");
    REQUIRE(ended == called);
  }
  victim.node->remove_session(*session);
  return 0;
}

namespace {
void add_message(fuzz::Script& script, unsigned kind, unsigned method_index, const char* payload,
                 unsigned length) {
  script.byte(kind)
      .byte(0)
      .byte(0)
      .byte(0)
      .byte(1)
      .byte(method_index)
      .byte(length)
      .add(payload, length)
      .byte(0);
}
}  // namespace

SEED("an-echo") { add_message(script, 1, 0, "hello", 5); }
SEED("many-echoes-that-the-peer-does-not-acknowledge") {
  for (int i = 0; i < 30; ++i) add_message(script, 1, 0, "hello", 5);
}
SEED("requests-of-the-program") {
  for (int i = 0; i < 12; ++i) add_message(script, 1, 5, "work", 4);
}
SEED("a-reply-to-a-call-that-was-not-made") { add_message(script, 2, 0, "reply", 5); }
SEED("references-to-nothing") {
  for (int i = 0; i < 20; ++i) {
    const Reference reference{.addr = 4096, .length = 1000, .rkey = 7, .crc = 1};
    script.byte(128 + 1).byte(0).byte(0).byte(0).byte(1).byte(5).add(&reference, sizeof reference).byte(0);
  }
}
