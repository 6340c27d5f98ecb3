// MPA set-up frames without a socket: both revisions, private data, RTR choice, and what is refused.
#include <cstring>

#include "check.h"
#include "providers/iwarp/protocol/negotiation.h"
#include "providers/iwarp/protocol/terminate.h"

using namespace verbena::iwarp;
using Event = FrameReader::Event;
using Bytes = std::vector<uint8_t>;

namespace {

SetUpFrame request(uint8_t revision = 2) {
  SetUpFrame frame;
  frame.revision = revision;
  if (revision >= 2) {
    frame.ird = 16;
    frame.ord = 32;
    frame.peer_to_peer = frame.offers_write = frame.offers_read = true;
  }
  return frame;
}

PrivateTrailer trailer(uint32_t from) {
  PrivateTrailer result{};
  result.from_qp = from;
  std::memcpy(result.magic, kTrailerMagic, sizeof result.magic);
  result.version = kTrailerVersion;
  return result;
}

SetUpFrame through_the_wire(const SetUpFrame& frame) {
  const Bytes bytes = encode(frame);
  FrameReader reader(frame.is_reply);
  size_t at = 0;
  for (;;) {
    const size_t n = std::min<size_t>(reader.wanted(), 3);
    CHECK(n > 0 && at + n <= bytes.size());
    const Event event = reader.take({bytes.data() + at, n});
    at += n;
    CHECK(event != Event::malformed);
    if (event == Event::done) break;
  }
  CHECK(at == bytes.size());
  return reader.frame();
}

}  // namespace

TEST("a request of revision 2 is decoded as it was encoded, with private data and trailer separated") {
  SetUpFrame sent = request();
  sent.private_data = {0, 1, 2, 250};
  sent.trailer = trailer(77);
  const SetUpFrame got = through_the_wire(sent);
  CHECK(got.revision == 2 && got.crc && !got.markers && !got.rejected && got.peer_to_peer);
  CHECK(got.ird == 16 && got.ord == 32 && got.offers_write && got.offers_read && !got.offers_zero_length);
  CHECK(got.private_data == sent.private_data);
  CHECK(got.trailer && got.trailer->from_qp == 77);
}

TEST("revision 1 has neither depths nor modes") {
  SetUpFrame sent = request(1);
  sent.private_data = Bytes(40, 9);
  const SetUpFrame got = through_the_wire(sent);
  CHECK(got.revision == 1 && !got.ird && !got.ord && !got.peer_to_peer && !got.trailer);
  CHECK(got.private_data == Bytes(40, 9));
}

TEST("the bytes are the RFC's") {
  const Bytes bytes = encode(request());
  CHECK(std::memcmp(bytes.data(), "MPA ID Req Frame", 16) == 0);
  CHECK(bytes[16] == 0x50 && bytes[17] == 2 && bytes[18] == 0 && bytes[19] == 4);
  CHECK(bytes[20] == 0x80 && bytes[21] == 16 && bytes[22] == 0xc0 && bytes[23] == 32);
}

TEST("frames with a wrong key, revision or length are malformed as early as possible") {
  const Bytes good = encode(request());
  const auto verdict = [](Bytes bytes, bool reply = false) {
    FrameReader reader(reply);
    return reader.take({bytes.data(), std::min(bytes.size(), sizeof(MpaFrame))});
  };
  Bytes bad = good;
  bad[0] = 'G';
  CHECK(FrameReader(false).take({bad.data(), 1}) == Event::malformed);
  CHECK(verdict(good, true) == Event::malformed);
  for (const uint8_t revision : {uint8_t{0}, uint8_t{3}, uint8_t{255}}) {
    bad = good;
    bad[17] = revision;
    CHECK(verdict(bad) == Event::malformed);
  }
  bad = good;
  bad[18] = 2, bad[19] = 1;  // 513 bytes of private data
  CHECK(verdict(bad) == Event::malformed);
  bad = good;
  bad[19] = 3;  // too short for the depths it announces
  CHECK(verdict(bad) == Event::malformed);
}

TEST("a trailer of another version is neither the user's data nor used") {
  SetUpFrame sent = request();
  sent.private_data = {5};
  sent.trailer = trailer(1);
  sent.trailer->version = 9;
  const SetUpFrame got = through_the_wire(sent);
  CHECK(!got.trailer && got.private_data == Bytes{5});
}

TEST("two Verbena ends agree on acknowledgements, CRC and a WRITE as RTR message") {
  SetUpFrame asked = request();
  asked.trailer = trailer(1);
  asked.crc = false;
  SetUpFrame answer = reply_to(through_the_wire(asked), false, 8, 8);
  answer.trailer = trailer(2);
  const SetUpFrame got = through_the_wire(answer);
  const auto ours = agree(asked, got, true);
  const auto theirs = agree(asked, got, false);
  CHECK(ours && ours->acknowledged && ours->rtr == Rtr::write && !ours->crc && ours->peer_ird == 8);
  CHECK(ours->peer_qp == 2 && theirs->peer_qp == 1);
  CHECK(theirs && theirs->acknowledged && !theirs->initiator && theirs->peer_ird == 16);
}

TEST("a foreign end gets plain iWARP in either revision") {
  SetUpFrame asked = request();
  asked.trailer = trailer(1);
  const auto with_foreign = agree(asked, reply_to(asked, true, 4, 4), true);
  CHECK(with_foreign && !with_foreign->acknowledged && with_foreign->crc);
  const SetUpFrame old = request(1);
  const SetUpFrame answer = reply_to(old, true, 4, 4);
  CHECK(answer.revision == 1 && !answer.ird && !answer.peer_to_peer);
  const auto with_old = agree(old, answer, false);
  CHECK(with_old && with_old->rtr == Rtr::none && with_old->peer_ird == 1 && with_old->crc);
}

TEST("either Verbena end can insist on plain iWARP, and they still know each other") {
  for (const bool by_caller : {true, false}) {
    SetUpFrame asked = request();
    asked.trailer = trailer(1);
    SetUpFrame answer = reply_to(asked, true, 4, 4);
    answer.trailer = trailer(2);
    (by_caller ? asked : answer).trailer->flags |= trailer_flag::plain;
    const auto ours = agree(asked, through_the_wire(answer), true);
    const auto theirs = agree(through_the_wire(asked), answer, false);
    CHECK(ours && !ours->acknowledged && ours->peer_qp == 2);
    CHECK(theirs && !theirs->acknowledged && theirs->peer_qp == 1);
  }
}

TEST("an end that does not support runs gets none") {
  for (const bool caller_does : {true, false}) {
    SetUpFrame asked = request();
    asked.trailer = trailer(1);
    SetUpFrame answer = reply_to(asked, true, 4, 4);
    answer.trailer = trailer(2);
    (caller_does ? asked : answer).trailer->flags |= trailer_flag::takes_runs;
    const auto ours = agree(asked, through_the_wire(answer), true);
    const auto theirs = agree(through_the_wire(asked), answer, false);
    CHECK(ours && ours->acknowledged && ours->takes_runs == !caller_does);
    CHECK(theirs && theirs->acknowledged && theirs->takes_runs == caller_does);
  }
}

TEST("a responder requests no more concurrent READs than the initiator accepts") {
  SetUpFrame asked = request();
  asked.ird = 3;
  const SetUpFrame answer = reply_to(asked, true, 8, 16);
  CHECK(answer.ord == 3 && answer.ird == 8);
}

TEST("each end gets markers if it asks for them, and only then") {
  for (const bool first : {true, false}) {
    for (const bool second : {true, false}) {
      SetUpFrame asked = request();
      asked.markers = first;
      SetUpFrame answer = reply_to(asked, true, 1, 1);
      answer.markers = second;
      const SetUpFrame received = through_the_wire(asked), answered = through_the_wire(answer);
      const Agreement initiator = *agree(asked, answered, true), responder = *agree(received, answer, false);
      CHECK(initiator.expects_markers == first && responder.sends_markers == first);
      CHECK(initiator.sends_markers == second && responder.expects_markers == second);
    }
  }
}

TEST("a rejection carries its private data") {
  SetUpFrame sent = reply_to(request(), true, 1, 1);
  sent.rejected = true;
  sent.private_data = {'n', 'o'};
  const SetUpFrame got = through_the_wire(sent);
  CHECK(got.rejected && got.private_data == (Bytes{'n', 'o'}));
}

TEST("terminate codes are understood in the RFC's order and in siw's") {
  const auto code = [](std::initializer_list<uint8_t> bytes) {
    Bytes body(bytes);
    return parse_terminate(std::as_bytes(std::span(body)))->code;
  };
  CHECK(code({0x20, 0x02, 0, 0}) == 0x2002);
  CHECK(code({0x02, 0x02, 0, 0}) == 0x2002);
  CHECK(code({0x11, 0x00, 0xc0, 0}) == 0x1100);
  CHECK(code({0x11, 0x00, 0x03, 0}) == 0x1100);
  CHECK(code({0x02, 0x06, 0, 0}) == 0x0206);
  CHECK(!parse_terminate({}));
  using verbena::Status;
  CHECK(status_of(0x1100) == Status::rem_access_err && status_of(0x0102) == Status::rem_access_err);
  CHECK(status_of(0x0206) == Status::rem_inv_req_err && status_of(0x0207) == Status::rem_op_err);
  CHECK(status_of(0x1202) == Status::rnr_retry_exc_err && status_of(0x2002) == Status::retry_exc_err);
}

TEST("a terminate message names the segment at fault") {
  OutSegment culprit, out;
  culprit.begin_untagged(RdmapOpcode::send, true, Queue::send, 7, 0);
  compose_terminate(out, 1, TerminateCode::ddp_no_buffer, {culprit.head.data() + 2, sizeof(UntaggedHeader)},
                    100);
  const auto parsed = parse_terminate(
      {out.head.data() + 2 + sizeof(UntaggedHeader), out.head_size - 2 - sizeof(UntaggedHeader)});
  CHECK(parsed && parsed->code == 0x1202);
  CHECK(parsed->segment && parsed->segment->message == 7 && parsed->segment->opcode == RdmapOpcode::send);
}

RUN_TESTS()
