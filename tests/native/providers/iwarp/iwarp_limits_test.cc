// Slow, silent, numerous and dead peers: each limit of the options, with a short timeout where a clock is
// needed, and with the time passed in where it is not.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <future>

#include "iwarp_foreign.h"
#include "providers/iwarp/channel.h"
#include "providers/iwarp/gid.h"

using namespace foreign;

namespace {

// A connected peer that has sent nothing.
ForeignPeer silent(const VerbenaEnd& ours) { return ForeignPeer(ours.listener->address()); }

bool is_open(const ForeignPeer& peer) {
  std::byte byte;
  const ssize_t n = ::recv(peer.socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return n > 0 || (n < 0 && errno == EAGAIN);
}

// The request of a Verbena end for one of our queue pairs by its number.
std::vector<uint8_t> request_for(const VerbenaEnd& ours, uint32_t qp, uint32_t from) {
  SetUpFrame frame = plain_request(2);
  PrivateTrailer trailer{};
  const Gid gid = ours.context->query().ports[0].gids[0];
  std::memcpy(trailer.gid, gid.data(), gid.size());
  std::memcpy(trailer.magic, kTrailerMagic, sizeof trailer.magic);
  trailer.version = kTrailerVersion;
  trailer.flags = trailer_flag::by_endpoint;
  trailer.port = 1;
  trailer.to_qp = qp;
  trailer.from_qp = from;
  frame.trailer = trailer;
  return encode(frame);
}

void set_loopback(bool up) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(up ? IFF_UP | IFF_RUNNING : 0);
  CHECK(ioctl(any.get(), SIOCSIFFLAGS, &request) == 0);
}

}  // namespace

TEST("a segment that is not completed is late, however slowly its bytes arrive") {
  StallDetector watch;
  CHECK(!watch.is_late(1'000, 0, false, 100));
  CHECK(!watch.is_late(5'000, 0, false, 100));  // no segment is incomplete
  CHECK(!watch.is_late(5'100, 1, true, 100));   // one was complete, another has begun
  CHECK(!watch.is_late(5'199, 1, true, 100));
  CHECK(watch.is_late(5'200, 1, true, 100));
  CHECK(!watch.is_late(5'201, 2, true, 100));  // it was completed after all
  CHECK(!watch.is_late(5'400, 2, false, 100));
  CHECK(!watch.is_late(5'450, 2, true, 100));
}

TEST("a peer that is silent or slow is disconnected at the limit") {
  VerbenaEnd ours({.handshake_timeout_ms = 200});
  const ForeignPeer quiet = silent(ours), dribbling = silent(ours);
  const auto frame = encode(plain_request(2));
  for (size_t i = 0; i < frame.size() && is_open(dribbling); ++i) {
    ::send(dribbling.socket.get(), frame.data() + i, 1, MSG_NOSIGNAL);
    pollfd end{dribbling.socket.get(), POLLIN, 0};
    poll(&end, 1, 50);
  }
  CHECK(!is_open(dribbling));
  CHECK(quiet.hears_the_end());
  connected(ours);
}

TEST("of too many silent peers the oldest are dropped, and an honest one connects") {
  VerbenaEnd ours({.handshake_timeout_ms = 60'000, .max_handshakes = 4});
  std::vector<ForeignPeer> crowd;
  for (int i = 0; i < 12; ++i) crowd.push_back(silent(ours));
  connected(ours);
  for (size_t i = 0; i < 8; ++i) CHECK(crowd[i].hears_the_end());
  CHECK(std::count_if(crowd.begin(), crowd.end(), is_open) <= 4);
}

TEST("few requests may wait for one queue pair that is not ready, and they do not block others") {
  VerbenaEnd ours({.max_handshakes = 8});
  const Gid gid = ours.context->query().ports[0].gids[0];
  const std::string node = net::to_text(*to_address(gid, 0));
  std::vector<ForeignPeer> waiting;
  for (uint32_t i = 0; i < 10; ++i) {
    waiting.emplace_back(node);
    const auto frame = request_for(ours, ours.qp->number(), 1000 + i);
    waiting.back().send(frame.data(), frame.size());
  }
  wait_until([&] { return std::count_if(waiting.begin(), waiting.end(), is_open) == 4; });
  connected(ours);
}

TEST("a connection with a stalled segment is closed, and posted requests complete") {
  VerbenaEnd ours({.stall_timeout_ms = 200});
  ForeignPeer peer = connected(ours);
  ours.expect(0, 4096);
  OutSegment out;
  out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
  out.append(Bytes(400).data(), 400);
  out.seal(true);
  peer.send(out.head.data(), 300);
  CHECK(peer.hears_the_end());
  wait_until([&] { return ours.connection->state() == ConnectionState::disconnected; });
  CHECK(VerbenaEnd::next(*ours.receives).status == Status::wr_flush_err);
  CHECK(ours.qp->state() == QpState::err);
}

TEST("an idle connection does not count as stalled") {
  VerbenaEnd ours({.stall_timeout_ms = 100});
  ForeignPeer peer = connected(ours);
  ours.expect(0, 64);
  std::byte byte;
  pollfd end{peer.socket.get(), POLLIN, 0};
  CHECK(poll(&end, 1, 400) == 0 || ::recv(peer.socket.get(), &byte, 1, MSG_PEEK) > 0);
  OutSegment out;
  out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
  out.append("hello", 5);
  peer.send(out);
  CHECK(VerbenaEnd::next(*ours.receives).status == Status::success);
}

TEST("a peer that vanished is noticed on an idle connection") {
  // A network namespace whose only link can be cut. The sockets of this thread are created in it.
  std::async(std::launch::async, [] {
    if (unshare(CLONE_NEWNET) != 0) {
      std::printf("(skipped: needs the right to make a network namespace) ");
      return;
    }
    set_loopback(true);
    VerbenaEnd ours({.dead_peer_timeout_ms = 1'000});
    ForeignPeer peer = connected(ours);
    set_loopback(false);
    wait_until([&] { return ours.connection->state() == ConnectionState::disconnected; });
    CHECK(is_open(peer));  // the peer was not informed
  }).get();
}

RUN_TESTS()
