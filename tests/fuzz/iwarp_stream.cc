// The RDMAP state machine with a peer that sends arbitrary bytes, as initiator and as responder: it accesses
// only the memory that its host gave it, does not call its host after the end, accepts no acknowledgement of
// requests that were not sent, and its own output is always well-formed.
#include <deque>

#include "fuzz.h"
#include "iwarp_peer_script.h"
#include "providers/iwarp/iwarp_host.h"

using namespace verbena::iwarp;
using fuzz::Bytes;
using iwarp_host::kKey;
using verbena::Status;

namespace {

constexpr size_t kRegion = 20'000, kInbox = 10'000;
constexpr uint32_t kRead = 3000;  // length of each READ that we send

enum Step : uint8_t {  // follow those of fuzz::PeerScript
  post_receive = fuzz::PeerScript::kKinds,
  toggle_region,
  send_message,
  send_write,
  send_read,
  send_atomic,
  send_immediate,
  send_output,
  revalidate,
  resume,
  offer_receive,
  set_step,
  kSteps
};

// A region under kKey at offset 0, receives, and the expected responses.
class Memory final : public StreamHost {
 public:
  explicit Memory(int receives) : receives_{Bytes(kInbox), receives} {}

  Refusal place_message(uint64_t offset, uint32_t length, Placement& out) override {
    check_not_over();
    return receives_.land(offset, length, out);
  }
  Refusal place_write(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override {
    check_not_over();
    return region_.land(stag, offset, length, out);
  }
  Refusal place_response(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) override {
    check_not_over();
    if (reads_.empty() || stag != reads_.front() || offset != placed_ahead_ ||
        length > sink_.size() - offset) {
      return {Status::bad_resp_err, TerminateCode::rdmap_stream};
    }
    out.add(sink_.data() + offset, length);
    return {};
  }
  Refusal message_arrived(uint64_t length, bool, const uint32_t*) override {
    check_not_over();
    REQUIRE(receives_.is_held && length <= receives_.buffer.size());
    receives_.is_held = false;
    return {};
  }
  Refusal immediate_arrived(uint32_t, uint64_t, bool) override {
    check_not_over();
    return receives_.take();
  }
  Refusal response_arrived(uint32_t length, bool last) override {
    check_not_over();
    REQUIRE(!reads_.empty());
    placed_ahead_ += length;
    REQUIRE(placed_ahead_ <= sink_.size());
    if (last != (placed_ahead_ == sink_.size())) return {Status::bad_resp_err, TerminateCode::rdmap_stream};
    if (last) {
      reads_.pop_front();
      placed_ahead_ = 0;
    }
    return {};
  }
  Refusal atomic_answered(uint32_t id, uint64_t) override {
    check_not_over();
    if (atomics_.empty() || id != atomics_.front()) {
      return {Status::bad_resp_err, TerminateCode::rdmap_stream};
    }
    atomics_.pop_front();
    return {};
  }
  Refusal read_requested(const ReadRequest& request) override {
    check_not_over();
    return request.length == 0 ? Refusal{}
                               : region_.check(request.source_stag, request.source_offset, request.length);
  }
  Refusal execute_atomic(const AtomicRequest& request, uint64_t& original) override {
    check_not_over();
    if (request.offset % sizeof original != 0) return {Status::rem_inv_req_err, TerminateCode::rdmap_stream};
    const Refusal refusal = region_.check(request.stag, request.offset, sizeof original);
    if (!refusal) std::memcpy(&original, region_.bytes.data() + request.offset, sizeof original);
    return refusal;
  }
  const std::byte* source(uint32_t stag, uint64_t offset, uint32_t length) override {
    return region_.check(stag, offset, length) ? nullptr : region_.bytes.data() + offset;
  }
  void acknowledged(uint64_t executed) override {
    check_not_over();
    REQUIRE(executed <= stream->requested());
  }
  void peer_not_ready(uint64_t executed, uint8_t) override {
    check_not_over();
    REQUIRE(executed < stream->requested());
    stream->rewind(executed);
    is_peer_ready = false;
  }
  void peer_ready() override {
    check_not_over();
    is_peer_ready = true;
  }
  void request_failed(uint64_t request, Status status) override {
    check_not_over();
    REQUIRE(request >= 1 && request <= stream->requested() && status != Status::success);
  }
  void terminated(const Termination&) override { check_not_over(); }

  void post_receive() { receives_.posted = std::min(receives_.posted + 1, 100); }
  void toggle_region() { region_.is_gone = !region_.is_gone; }
  void expect_read(uint32_t id) { reads_.push_back(id); }
  void expect_atomic(uint32_t id) { atomics_.push_back(id); }

  Stream* stream = nullptr;
  bool is_peer_ready = true;
  bool is_over = false;

 private:
  void check_not_over() const { REQUIRE(!is_over); }

  iwarp_host::Region region_{fuzz::pattern(kRegion)};
  iwarp_host::Receives receives_;
  Bytes sink_ = Bytes(kRead);
  std::deque<uint32_t> reads_, atomics_;
  size_t placed_ahead_ = 0;
};

class End {
 public:
  End(const Agreement& agreement, uint32_t ird, size_t mulpdu, int receives)
      : memory_(receives),
        stream_(agreement, ird, mulpdu, 12, memory_),
        ird_(std::max(ird, 1u)),
        peer_markers_(agreement.crc),
        own_markers_(agreement.crc) {
    memory_.stream = &stream_;
  }

  // Inserts markers where they are expected, but not into bytes that need not be an FPDU: what follows such
  // bytes has its markers in the wrong places.
  void feed_marked(const Bytes& bytes, size_t step, bool is_fpdu) {
    Bytes marked = bytes;
    if (is_fpdu) {
      marked.resize(peer_markers_.marked_bytes(bytes.size()));
      const iovec all{const_cast<std::byte*>(bytes.data()), bytes.size() - kMpaCrcBytes};
      peer_markers_.insert({&all, 1}, marked.data());
    }
    for (size_t at = 0; at < marked.size() && !memory_.is_over; at += step) {
      const bool continues_run =
          stream_.take_marked({marked.data() + at, std::min(step, marked.size() - at)});
      REQUIRE(continues_run != (stream_.fault() || stream_.was_terminated()));
      memory_.is_over = !continues_run;
    }
  }

  void feed(const Bytes& bytes, size_t step, bool is_fpdu) {
    if (stream_.expects_markers()) return feed_marked(bytes, step, is_fpdu);
    for (size_t at = 0; at < bytes.size() && !memory_.is_over;) {
      const size_t taken = iwarp_host::deliver(stream_, std::span(bytes).subspan(at), step);
      REQUIRE(taken > 0);
      at += taken;
      const bool continues_run = stream_.work();
      REQUIRE(continues_run != (stream_.fault() || stream_.was_terminated()));
      memory_.is_over = !continues_run;
    }
  }

  void act(uint8_t step, fuzz::Input& input) {
    if (step == post_receive) memory_.post_receive();
    if (step == toggle_region) memory_.toggle_region();
    if (step == revalidate && !memory_.is_over) stream_.revalidate();
    if (step == offer_receive) stream_.offer_receive();
    if (step == send_output) send_pending();
    if (memory_.is_over || !stream_.may_send()) return;
    if (step == resume && memory_.is_peer_ready) stream_.resume();
    if (memory_.is_peer_ready) request(step, input);
  }

  void send_pending() {
    if (!stream_.may_send()) return;
    const auto all = [this](auto compose) {
      size_t count = 0;
      while (compose(segment_)) {
        check_output();
        ++count;
      }
      return count;
    };
    all([this](OutSegment& out) { return stream_.compose_control(out); });
    // A peer cannot make us owe more responses than were negotiated, nor more bytes than it may read.
    const size_t most = kRegion / std::min<size_t>(stream_.mulpdu(), kRegion) + 1;
    REQUIRE(all([this](OutSegment& out) { return stream_.compose_response(out, 20); }) <= ird_ * 2 * most);
    if (!stream_.fault() && stream_.is_ack_due()) {
      stream_.compose_ack(segment_);
      check_output();
    }
    REQUIRE(all([this](OutSegment& out) { return stream_.compose_fault_report(out); }) <= 2);
  }

 private:
  void request(uint8_t step, fuzz::Input& input) {
    if (step < send_message || step > send_immediate) return;
    const auto id = static_cast<uint32_t>(stream_.count_request());
    if (step == send_message || step == send_write) {
      const Bytes payload = fuzz::pattern(std::min<size_t>(input.number<uint16_t>(), stream_.mulpdu()));
      const bool last = input.byte() & 1;
      if (step == send_message) stream_.begin_send(segment_, 0, last, false, nullptr);
      if (step == send_write)
        stream_.begin_write(segment_, 1, 2, static_cast<uint32_t>(payload.size()), last);
      segment_.add_piece(payload.data(), payload.size());
      stream_.seal(segment_);
      return check_output();
    }
    if (step == send_read) {
      stream_.compose_read(segment_, {id, 0, kRead, 1, 2});
      memory_.expect_read(id);
    } else if (step == send_atomic) {
      stream_.compose_atomic(segment_, {.id = id, .stag = 1, .offset = 8});
      memory_.expect_atomic(id);
    } else {
      stream_.compose_immediate(segment_, 7, true);
    }
    check_output();
  }

  void check_output() {
    const Bytes out = iwarp_host::flat(segment_);
    REQUIRE(out.size() == segment_.total_bytes() && out.size() % kMpaAlignment == 0);
    if (stream_.agreement().sends_markers) {
      std::span<const std::byte> left = out;
      REQUIRE(own_markers_.take(left) == MarkerStripper::Event::fpdu && left.empty());
      return;
    }
    const size_t ulpdu = std::to_integer<size_t>(out[0]) << 8 | std::to_integer<size_t>(out[1]);
    REQUIRE(out.size() == kMpaLengthBytes + ulpdu + pad_bytes(ulpdu) + kMpaCrcBytes);
    const uint32_t sum =
        stream_.agreement().crc ? verbena::crc32c(0, out.data(), out.size() - kMpaCrcBytes) : 0;
    for (size_t i = 0; i < kMpaCrcBytes; ++i) {
      REQUIRE(out[out.size() - kMpaCrcBytes + i] == static_cast<std::byte>(sum >> (8 * i)));
    }
  }

  Memory memory_;
  Stream stream_;
  const size_t ird_;
  MarkerInserter peer_markers_;
  MarkerStripper own_markers_;
  OutSegment segment_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Input input(bytes, size);
  const uint8_t flags = input.byte(), ird = input.byte() % 8, mulpdu = input.byte(), receives = input.byte();
  const Agreement agreement{.initiator = (flags & 1) != 0,
                            .crc = (flags & 2) != 0,
                            .acknowledged = (flags & 4) != 0,
                            .sends_markers = (flags & 0x20) != 0,
                            .expects_markers = (flags & 0x40) != 0,
                            .rtr = static_cast<Rtr>(flags >> 3 & 3),
                            .takes_runs = (flags & 4) != 0};
  End end(agreement, ird, 128 + size_t{mulpdu} * 256, receives % 8);
  fuzz::PeerScript peer(agreement.crc, {.stag = kKey, .base = 0, .size = kRegion});
  size_t run = 65536;
  for (int steps = 0; !input.empty() && steps < 500; ++steps) {
    const uint8_t step = input.byte() % kSteps;
    if (step == set_step) run = size_t{input.byte()} * 16 + 1;
    if (step < fuzz::PeerScript::kKinds) {
      end.feed(peer.next(step, input), run, step != fuzz::PeerScript::raw);
    } else {
      end.act(step, input);
    }
  }
  end.send_pending();
  return 0;
}

namespace {

enum Terms : unsigned {
  initiator = 1,
  crc = 2,
  acknowledged = 4,
  rtr_write = 2 << 3,
  rtr_read = 3 << 3,
  with_markers = 0x60
};

fuzz::Script& begin(fuzz::Script& script, unsigned terms) {
  script.byte(terms).byte(4).byte(40).byte(2);
  return script.byte(send_output);
}

}  // namespace

SEED("responder-takes-everything") {
  begin(script, crc | acknowledged | rtr_write);
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 0);
  fuzz::message(script, RdmapOpcode::send, false, 3000);
  fuzz::message(script, RdmapOpcode::send_solicited, true, 200);
  fuzz::one_of_each(script, 8);
  script.byte(send_output);
}

SEED("responder-with-markers") {
  begin(script, crc | acknowledged | rtr_write | with_markers);
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 0);
  fuzz::message(script, RdmapOpcode::send, true, 3000);
  fuzz::tagged(script, RdmapOpcode::write, true, 64, 488);
  script.byte(set_step).byte(4);
  fuzz::tagged(script, RdmapOpcode::write, true, 64, 5000);
  fuzz::control(script, RdmapOpcode::read_request)
      .byte(1)
      .byte(0)
      .number(uint32_t{15000})
      .number(uint16_t{8});
  script.byte(send_output);
}

SEED("markers-in-the-wrong-places") {
  begin(script, with_markers);
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 10);
  script.byte(fuzz::PeerScript::raw).byte(4).number(uint32_t{0});
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 2000);
  script.byte(send_output);
}

SEED("initiator-hears-its-answers") {
  begin(script, initiator | crc | acknowledged | rtr_read);
  fuzz::tagged(script, RdmapOpcode::read_response, true, 0, 0);
  script.byte(send_message).number(uint16_t{500}).byte(1).byte(send_read).byte(send_atomic);
  script.byte(send_write).number(uint16_t{500}).byte(1).byte(send_immediate).byte(send_output);
  script.byte(fuzz::PeerScript::tagged).byte(static_cast<unsigned>(RdmapOpcode::read_response)).byte(1 | 2);
  script.number(uint32_t{2}).number(uint16_t{0}).number(static_cast<uint16_t>(kRead));
  fuzz::control(script, RdmapOpcode::atomic_response).number(uint32_t{3}).number(uint64_t{9});
  fuzz::acknowledge(script, AckKind::executed, 0, 4, 0);
  fuzz::acknowledge(script, AckKind::failed, 10, 4, 5);
  fuzz::control(script, RdmapOpcode::terminate).byte(4).byte(0x11).byte(0).byte(0).byte(0);
}

SEED("not-ready-and-again") {
  begin(script, initiator | crc | acknowledged);
  script.byte(send_message).number(uint16_t{500}).byte(1).byte(send_message).number(uint16_t{500}).byte(0);
  fuzz::acknowledge(script, AckKind::not_ready, 0, 1, 0);
  fuzz::acknowledge(script, AckKind::ready, 0, 1, 0);
  script.byte(resume).byte(send_output).byte(send_message).number(uint16_t{10}).byte(1);
  fuzz::acknowledge(script, AckKind::executed, 0, 2, 0);
}

SEED("no-receive-then-one") {
  script.byte(crc | acknowledged).byte(4).byte(40).byte(0);
  fuzz::message(script, RdmapOpcode::send, true, 100);
  fuzz::tagged(script, RdmapOpcode::write, true, 0, 10);
  script.byte(send_output).byte(post_receive).byte(offer_receive).byte(send_output);
  fuzz::acknowledge(script, AckKind::restart, 0, 0, 0);
  fuzz::message(script, RdmapOpcode::send, true, 100);
  script.byte(send_output);
}

SEED("region-goes-while-it-is-written") {
  begin(script, crc | acknowledged);
  script.byte(set_step).byte(4);
  fuzz::tagged(script, RdmapOpcode::write, false, 0, 9000);
  script.byte(toggle_region).byte(revalidate);
  fuzz::tagged(script, RdmapOpcode::write, true, 9000, 9000);
  script.byte(send_output);
}

SEED("a-run-kept-and-a-run-broken") {
  begin(script, crc | acknowledged);
  fuzz::acknowledge(script, AckKind::run, 0, 0, 250);
  for (const unsigned at : {0u, 100u}) {
    fuzz::tagged(script, RdmapOpcode::write, false, static_cast<uint16_t>(at), 100);
  }
  fuzz::tagged(script, RdmapOpcode::write, true, 200, 50);
  script.byte(send_output);
  fuzz::acknowledge(script, AckKind::run, 0, 0, 250);
  fuzz::tagged(script, RdmapOpcode::write, false, 0, 100);
  fuzz::message(script, RdmapOpcode::send, true, 100);
  script.byte(send_output);
}

SEED("plain-iwarp-terminated") {
  begin(script, 0);
  fuzz::message(script, RdmapOpcode::send_invalidate, true, 30);
  fuzz::tagged(script, RdmapOpcode::write, true, 19'999, 30);
  script.byte(send_output);
}

SEED("more-reads-than-agreed") {
  begin(script, crc);
  for (int i = 0; i < 6; ++i) {
    fuzz::control(script, RdmapOpcode::read_request).byte(1).byte(0).number(uint32_t{10}).number(uint16_t{0});
  }
  script.byte(send_output);
}
