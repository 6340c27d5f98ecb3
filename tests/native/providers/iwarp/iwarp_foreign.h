// Both sides of a connection between our provider and a peer that is not Verbena: ours through the contract,
// the other with hand-made frames over a blocking socket.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "net/address.h"
#include "providers/iwarp/options.h"
#include "providers/iwarp/protocol/stream.h"
#include "providers/iwarp/queue_pair.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"

namespace foreign {

using namespace verbena;
using namespace verbena::iwarp;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kTimeoutNs = 10'000'000'000;

inline void wait_until(const std::function<bool()>& condition) {
  const uint64_t deadline = now_ns() + kTimeoutNs;
  while (!condition()) {
    CHECK(now_ns() < deadline);
    std::this_thread::yield();
  }
}

// Our side: one context on the loopback, a QP, and 4 KiB under one key.
struct VerbenaEnd {
  explicit VerbenaEnd(const Options& options = options_from_environment()) : context(open("lo", options)) {}

  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> domain = context->alloc_pd();
  std::shared_ptr<CompletionQueue> sends = context->create_cq(64), receives = context->create_cq(64);
  std::shared_ptr<QueuePair> qp = domain->create_qp({.send_cq = sends, .recv_cq = receives});
  std::array<std::byte, 4096> memory{};
  std::shared_ptr<MemoryRegion> region =
      domain->register_memory(memory.data(), memory.size(), access::all, false);
  std::shared_ptr<Listener> listener = context->listen("", 16);
  std::shared_ptr<Connection> connection;

  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }
  Sge piece(size_t offset, uint32_t length) const { return {at(offset), length, region->lkey()}; }
  void expect(size_t offset, uint32_t length) {
    const Sge sge = piece(offset, length);
    const RecvRequest request{.id = 5, .local = {&sge, 1}};
    CHECK(qp->post_recv({&request, 1}).accepted == 1);
  }
  void post(Opcode opcode, size_t offset, uint32_t length, uint32_t rkey = 0, uint64_t remote = 0) {
    const Sge sge = piece(offset, length);
    const SendRequest request{
        .id = 9, .opcode = opcode, .rkey = rkey, .remote_addr = remote, .local = {&sge, 1}};
    CHECK(qp->post_send({&request, 1}).accepted == 1);
  }
  void connect_to(const VerbenaEnd& peer) const {  // by endpoints
    const PortAttributes port = peer.context->query().ports[0];
    soft::move_to_init(*qp);
    soft::move_to_rts(*qp,
                      {.dest_gid = port.gids[0], .dest_lid = port.lid, .dest_qp_num = peer.qp->number()});
  }
  static Completion next(CompletionQueue& cq) {
    Completion completion;
    wait_until([&] { return cq.poll({&completion, 1}) == 1; });
    return completion;
  }
  std::shared_ptr<ConnectRequest> next_request() {
    std::shared_ptr<ConnectRequest> request;
    wait_until([&] { return (request = listener->next()) != nullptr; });
    return request;
  }
};

// The other side: a blocking socket and hand-made frames.
struct ForeignPeer {
  explicit ForeignPeer(const std::string& address) {
    const net::SocketAddress to = net::resolve(address, "test").front();
    socket = UniqueFd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(::connect(socket.get(), to.get(), to.length) == 0);
    const timeval limit{10, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  explicit ForeignPeer(UniqueFd accepted) : socket(std::move(accepted)) {}

  void send(const void* bytes, size_t size) const {
    CHECK(::send(socket.get(), bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
  }
  void send(OutSegment& segment) const {
    segment.seal(true);
    iovec pieces[kMaxPieces + 2];
    const size_t count = segment.gather(0, pieces);
    for (size_t i = 0; i < count; ++i) send(pieces[i].iov_base, pieces[i].iov_len);
  }
  void feed(void* bytes, size_t size) const {
    CHECK(::recv(socket.get(), bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size));
  }
  bool hears_the_end() const {
    for (;;) {
      std::byte ignored[512];
      const ssize_t n = ::recv(socket.get(), ignored, sizeof ignored, 0);
      if (n <= 0) return n == 0 || errno == ECONNRESET;
    }
  }
  SetUpFrame hear_frame(bool reply) const {
    FrameReader reader(reply);
    for (;;) {
      Bytes bytes(reader.wanted());
      feed(bytes.data(), bytes.size());
      const auto event = reader.take({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      CHECK(event != FrameReader::Event::malformed);
      if (event == FrameReader::Event::done) return reader.frame();
    }
  }
  // Receives one segment, checks its CRC, and returns header and payload.
  SegmentHeader receive_segment(Bytes& payload) const {
    FpduReader reader(true);
    for (;;) {
      switch (reader.next()) {
        case FpduReader::Event::more: {
          std::byte byte;  // one at a time, so that nothing of the next segment is taken
          feed(&byte, 1);
          iovec room[kMaxRoom];
          reader.room(room);
          std::memcpy(room[0].iov_base, &byte, 1);
          reader.arrived(1);
          break;
        }
        case FpduReader::Event::header: {
          payload.assign(reader.payload_bytes(), std::byte{0});
          const iovec piece{payload.data(), payload.size()};
          reader.place({&piece, 1});
          break;
        }
        case FpduReader::Event::end:
          return decode_header(reader.header(), payload.size());
        default:
          CHECK(false);
      }
    }
  }
  UniqueFd socket;
};

inline SetUpFrame plain_request(uint8_t revision) {
  SetUpFrame frame;
  frame.revision = revision;
  if (revision >= 2) frame.ird = frame.ord = 4;
  return frame;
}

// Accepts a foreign peer that has sent no FPDU yet.
inline ForeignPeer connected(VerbenaEnd& ours, uint8_t revision = 2) {
  ForeignPeer peer(ours.listener->address());
  const auto request = encode(plain_request(revision));
  peer.send(request.data(), request.size());
  ours.connection = ours.next_request()->accept(ours.qp, {.responder_resources = 4, .initiator_depth = 4});
  const SetUpFrame reply = peer.hear_frame(true);
  CHECK(!reply.rejected && !reply.trailer && reply.revision == revision &&
        reply.ird.has_value() == (revision == 2));
  return peer;
}

}  // namespace foreign
