// The provider with a peer that is not Verbena: plain iWARP with hand-made frames over a real socket. The
// peer gets the semantics of the RFCs, and its errors end its own connection only.
#include "iwarp_foreign.h"

using namespace foreign;

namespace {

std::string capability(const QueuePair& qp, const std::string& name) {
  for (const auto& [key, value] : qp.capabilities()) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

TEST("a foreign initiator of either revision sends, writes and reads") {
  for (const uint8_t revision : {uint8_t{1}, uint8_t{2}}) {
    VerbenaEnd ours;
    ForeignPeer peer = connected(ours, revision);
    CHECK(capability(*ours.qp, "acknowledged") == "no" && capability(*ours.qp, "atomics") == "no");
    ours.expect(0, 64);
    OutSegment out;
    out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
    out.append("hello", 5);
    peer.send(out);
    const Completion arrived = VerbenaEnd::next(*ours.receives);
    CHECK(arrived.status == Status::success && arrived.byte_count == 5);
    CHECK(std::memcmp(ours.memory.data(), "hello", 5) == 0);

    out.begin_tagged(RdmapOpcode::write, true, ours.region->rkey(), ours.at(100));
    out.append("written", 7);
    peer.send(out);
    const ReadRequestBody order{77, 4000, 7, ours.region->rkey(), ours.at(100)};
    out.begin_untagged(RdmapOpcode::read_request, true, Queue::read_request, 1, 0);
    out.append(&order, sizeof order);
    peer.send(out);
    Bytes payload;
    const SegmentHeader response = peer.receive_segment(payload);
    CHECK(response.opcode == RdmapOpcode::read_response && response.stag == 77 && response.offset == 4000);
    CHECK(std::memcmp(payload.data(), "written", 7) == 0);

    // From our side: complete when TCP has it, and framed as the RFC demands.
    ours.post(Opcode::send, 100, 7);
    CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
    const SegmentHeader message = peer.receive_segment(payload);
    CHECK(message.opcode == RdmapOpcode::send && message.message == 1 && payload.size() == 7);
    ours.post(Opcode::write, 100, 7, 0xbeef, 0x1000);
    CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
    const SegmentHeader write = peer.receive_segment(payload);
    CHECK(write.opcode == RdmapOpcode::write && write.stag == 0xbeef && write.offset == 0x1000 && write.last);
    ours.post(Opcode::read, 200, 4, 0xbeef, 0x2000);
    const SegmentHeader read = peer.receive_segment(payload);
    ReadRequestBody body;
    std::memcpy(&body, payload.data(), sizeof body);
    CHECK(read.opcode == RdmapOpcode::read_request && body.length == 4 && body.source_offset == 0x2000);
    out.begin_tagged(RdmapOpcode::read_response, true, body.sink_stag, body.sink_offset);
    out.append("read", 4);
    peer.send(out);
    CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
    CHECK(std::memcmp(ours.memory.data() + 200, "read", 4) == 0);
  }
}

TEST("operations of Verbena ends only are refused when posted, and those before them are accepted") {
  VerbenaEnd ours;
  ForeignPeer peer = connected(ours);
  const Sge sge = ours.piece(0, 8);
  for (const Opcode opcode :
       {Opcode::fetch_add, Opcode::compare_swap, Opcode::send_with_imm, Opcode::write_with_imm}) {
    const SendRequest batch[] = {
        {.opcode = Opcode::send, .local = {&sge, 1}},
        {.opcode = opcode, .rkey = 0xbeef, .remote_addr = 0x1000, .local = {&sge, 1}}};
    const PostResult posted = ours.qp->post_send(batch);
    CHECK(posted.accepted == 1 && posted.error == PostError::unsupported_opcode);
    const PostResult alone = ours.qp->post_send({batch + 1, 1});
    CHECK(alone.accepted == 0 && alone.error == PostError::unsupported_opcode);
  }
  CHECK(ours.qp->state() == QpState::rts);
}

TEST("a responder waits for the initiator's first message without a limit") {
  VerbenaEnd ours;
  ForeignPeer peer = connected(ours);
  ours.post(Opcode::send, 0, 8);
  constexpr uint64_t kHourNs = 3'600'000'000'000;
  auto& qp = static_cast<IwarpQueuePair&>(*ours.qp);
  for (uint64_t hour = 0; hour < 3; ++hour) qp.check_timers(now_ns() + hour * kHourNs);
  Completion none;
  CHECK(ours.sends->poll({&none, 1}) == 0);
  OutSegment out;
  out.begin_tagged(RdmapOpcode::write, true, 0, 0);
  peer.send(out);
  Bytes payload;
  CHECK(peer.receive_segment(payload).opcode == RdmapOpcode::send && payload.size() == 8);
  CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
}

TEST("a forbidden write and a message without a receive are answered with the RFC's terminate") {
  for (const bool write : {true, false}) {
    VerbenaEnd ours;
    ForeignPeer peer = connected(ours);
    OutSegment out;
    if (write) {
      out.begin_tagged(RdmapOpcode::write, true, ours.region->rkey() ^ 0x101, ours.at(0));
    } else {
      out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
    }
    out.append("x", 1);
    peer.send(out);
    Bytes payload;
    const SegmentHeader header = peer.receive_segment(payload);
    CHECK(header.opcode == RdmapOpcode::terminate && header.queue == 2 && header.message == 1);
    const auto terminate = parse_terminate(payload);
    CHECK(terminate && terminate->code == (write ? 0x1100 : 0x1202) && terminate->segment);
    CHECK(peer.hears_the_end());
    wait_until([&] { return ours.qp->state() == QpState::err; });
    wait_until([&] { return ours.connection->state() == ConnectionState::disconnected; });
    CHECK(ours.connection->error_code() == "peer_refused");
    CHECK(ours.memory[0] == std::byte{0});
  }
}

TEST("a terminate of the peer fails the READ it names") {
  VerbenaEnd ours;
  ForeignPeer peer = connected(ours);
  OutSegment out;
  out.begin_tagged(RdmapOpcode::write, true, 0, 0);  // zero-length: the peer may send now
  peer.send(out);
  ours.post(Opcode::read, 0, 8, 0xdead, 0x1000);
  ours.post(Opcode::send, 0, 8);
  Bytes payload;
  peer.receive_segment(payload);
  OutSegment culprit;
  culprit.begin_untagged(RdmapOpcode::read_request, true, Queue::read_request, 1, 0);
  compose_terminate(out, 1, TerminateCode::rdmap_bounds, {culprit.head.data() + 2, sizeof(UntaggedHeader)},
                    46);
  peer.send(out);
  CHECK(VerbenaEnd::next(*ours.sends).status == Status::rem_access_err);
  CHECK(VerbenaEnd::next(*ours.sends).status == Status::wr_flush_err);
}

TEST("a terminate for a completed WRITE is reported by the connection") {
  for (const bool siw_order : {false, true}) {
    VerbenaEnd ours;
    ForeignPeer peer = connected(ours);
    OutSegment out;
    out.begin_tagged(RdmapOpcode::write, true, 0, 0);
    peer.send(out);
    ours.post(Opcode::write, 0, 8, 0xdead, 0x1000);
    CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
    Bytes payload;
    peer.receive_segment(payload);
    out.begin_untagged(RdmapOpcode::terminate, true, Queue::terminate, 1, 0);
    const uint8_t rfc[] = {0x11, 0x00, 0x00, 0x00}, siw[] = {0x11, 0x00, 0x03, 0x00};
    out.append(siw_order ? siw : rfc, sizeof rfc);
    if (siw_order) out.append("\0\x16", 2);
    peer.send(out);
    wait_until([&] { return ours.connection->state() == ConnectionState::disconnected; });
    CHECK(ours.connection->error_code() == "REM_ACCESS_ERR" && ours.qp->state() == QpState::err);
  }
}

TEST("a corrupt segment ends the connection and delivers nothing") {
  VerbenaEnd ours;
  ForeignPeer peer = connected(ours);
  ours.expect(0, 64);
  OutSegment out;
  out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
  out.append("hello", 5);
  out.seal(true);
  out.head[25] ^= std::byte{1};
  peer.send(out.head.data(), out.head_size);
  Bytes payload;
  CHECK(peer.receive_segment(payload).opcode == RdmapOpcode::terminate);
  CHECK(parse_terminate(payload)->code == 0x2002);
  CHECK(VerbenaEnd::next(*ours.receives).status == Status::wr_flush_err);
  CHECK(ours.memory[0] == std::byte{0});
}

TEST("with a foreign responder: no acknowledgements, our private data first, its RTR mode") {
  VerbenaEnd ours;
  UniqueFd server = net::listen_at(net::resolve("127.0.0.1:0", "test"), "test", 1);
  auto connection =
      ours.context->connect(ours.qp, net::to_text(net::local_address(server.get())),
                            {.private_data = {1, 2, 3}, .responder_resources = 2, .initiator_depth = 2});
  pollfd waiting{server.get(), POLLIN, 0};
  CHECK(poll(&waiting, 1, 10'000) == 1);
  ForeignPeer peer{UniqueFd(accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC))};
  const SetUpFrame request = peer.hear_frame(false);
  CHECK(request.private_data == (std::vector<uint8_t>{1, 2, 3}) && request.ird == 2 && request.trailer);
  SetUpFrame reply = reply_to(request, true, 4, 4);
  reply.offers_write = false;
  reply.offers_read = true;
  reply.private_data = {7};
  const auto frame = encode(reply);
  const uint64_t answered_ns = now_ns();
  peer.send(frame.data(), frame.size());
  wait_until([&] { return connection->state() == ConnectionState::established; });
  CHECK(connection->private_data() == std::vector<uint8_t>{7});
  Bytes payload;
  const SegmentHeader greeting = peer.receive_segment(payload);
  CHECK(now_ns() - answered_ns >= 100'000'000);  // Linux siw would miss an earlier message
  CHECK(greeting.opcode == RdmapOpcode::read_request && payload.size() == sizeof(ReadRequestBody));
  OutSegment out;
  out.begin_tagged(RdmapOpcode::read_response, true, 0, 0);
  peer.send(out);
  ours.post(Opcode::send, 0, 16);
  CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
  CHECK(peer.receive_segment(payload).opcode == RdmapOpcode::send && payload.size() == 16);
}

TEST("options select revision 1 without a trailer") {
  setenv("VERBENA_IWARP_MPA_REVISION", "1", 1);
  setenv("VERBENA_IWARP_ACKNOWLEDGED", "0", 1);
  VerbenaEnd ours;
  unsetenv("VERBENA_IWARP_MPA_REVISION");
  unsetenv("VERBENA_IWARP_ACKNOWLEDGED");
  CHECK(capability(*ours.qp, "acknowledged") == "no");
  UniqueFd server = net::listen_at(net::resolve("127.0.0.1:0", "test"), "test", 1);
  auto connection = ours.context->connect(ours.qp, net::to_text(net::local_address(server.get())),
                                          {.private_data = {1, 2, 3}});
  pollfd waiting{server.get(), POLLIN, 0};
  CHECK(poll(&waiting, 1, 10'000) == 1);
  ForeignPeer peer{UniqueFd(accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC))};
  const SetUpFrame request = peer.hear_frame(false);
  CHECK(request.revision == 1 && !request.ird && !request.trailer && !request.peer_to_peer);
  CHECK(request.private_data == (std::vector<uint8_t>{1, 2, 3}));
  const auto frame = encode(reply_to(request, true, 4, 4));
  peer.send(frame.data(), frame.size());
  wait_until([&] { return connection->state() == ConnectionState::established; });
  ours.post(Opcode::send, 0, 16);
  Bytes payload;
  CHECK(peer.receive_segment(payload).opcode == RdmapOpcode::send && payload.size() == 16);
}

TEST("requests posted before the peer connects complete without polling") {
  setenv("VERBENA_IWARP_ACKNOWLEDGED", "0", 1);
  VerbenaEnd ends[2];
  unsetenv("VERBENA_IWARP_ACKNOWLEDGED");
  for (VerbenaEnd& end : ends) {
    const VerbenaEnd& peer = ends[&end == ends];
    end.connect_to(peer);
    end.sends->arm(false);
    end.post(Opcode::write, 0, 8, peer.region->rkey(), peer.at(0));
  }
  for (const VerbenaEnd& end : ends) {
    pollfd bell{end.sends->fileno(), POLLIN, 0};
    CHECK(poll(&bell, 1, 10'000) == 1);
    CHECK(VerbenaEnd::next(*end.sends).status == Status::success);
  }
}

TEST("a peer that wants markers gets them, and need not send any") {
  VerbenaEnd ours;
  ForeignPeer peer(ours.listener->address());
  SetUpFrame request = plain_request(2);
  request.markers = true;
  const auto frame = encode(request);
  peer.send(frame.data(), frame.size());
  ours.connection = ours.next_request()->accept(ours.qp, {.responder_resources = 4, .initiator_depth = 4});
  CHECK(!peer.hear_frame(true).markers);
  CHECK(capability(*ours.qp, "markers") == "sent");
  ours.expect(0, 64);
  OutSegment out;
  out.begin_untagged(RdmapOpcode::send, true, Queue::send, 1, 0);
  out.append("hello", 5);
  peer.send(out);
  CHECK(VerbenaEnd::next(*ours.receives).status == Status::success);
  ours.memory.fill(std::byte{7});
  ours.post(Opcode::write, 0, 4000, 0xbeef, 0x1000);
  CHECK(VerbenaEnd::next(*ours.sends).status == Status::success);
  Bytes wire(4 + 2 + sizeof(TaggedHeader) + 4000 + 4 + 7 * sizeof(MpaMarker));
  peer.feed(wire.data(), wire.size());
  MarkerStripper stripper(true);
  std::span<const std::byte> left = wire;
  CHECK(stripper.take(left) == MarkerStripper::Event::fpdu && left.empty());
  const auto fpdu = stripper.fpdu();
  CHECK(std::all_of(fpdu.begin() + 16, fpdu.end() - 4, [](std::byte b) { return b == std::byte{7}; }));
}

TEST("a peer that sends garbage or nothing does not affect the next") {
  VerbenaEnd ours;
  const ForeignPeer silent(ours.listener->address());
  const ForeignPeer rambling(ours.listener->address());
  rambling.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
  CHECK(rambling.hears_the_end());
  connected(ours);
}

RUN_TESTS()
