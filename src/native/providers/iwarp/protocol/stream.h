// RDMAP and DDP over one connection as a state machine without I/O: segments in, segments out, and questions
// to a host (the queue pair) about memory and requests. Receiving in stream_receive.cc, sending in
// stream_send.cc. May depend on the protocol files beside it and on verbs/types.h.
#pragma once

#include <array>
#include <deque>
#include <optional>

#include "providers/iwarp/protocol/framing.h"
#include "providers/iwarp/protocol/markers.h"
#include "providers/iwarp/protocol/negotiation.h"
#include "providers/iwarp/protocol/segment.h"
#include "providers/iwarp/protocol/terminate.h"
#include "verbs/types.h"

namespace verbena::iwarp {

// Why a segment or request is not taken: what the requester gets, and the code for the TERMINATE.
struct Refusal {
  Status status = Status::success;
  TerminateCode code = TerminateCode::rdmap_local;
  bool not_ready = false;  // no receive is posted: between Verbena ends it may come again

  explicit operator bool() const { return status != Status::success || not_ready; }
};

// Where a segment's payload goes. No pieces although there is payload: nowhere, but it is not an error.
struct Landing {
  std::array<iovec, kMaxPieces> pieces;
  size_t count = 0;

  void add(std::byte* bytes, size_t size) {
    if (size > 0 && count < pieces.size()) pieces[count++] = {bytes, size};
  }
};

struct ReadOrder {
  uint32_t sink_stag = 0;
  uint64_t sink_offset = 0;
  uint32_t length = 0;
  uint32_t source_stag = 0;
  uint64_t source_offset = 0;
};

struct AtomicOrder {
  AtomicOperation operation = AtomicOperation::fetch_add;
  uint32_t id = 0;
  uint32_t stag = 0;
  uint64_t offset = 0;
  uint64_t add_or_swap = 0, add_or_swap_mask = 0;
  uint64_t compare = 0, compare_mask = 0;
};

// What the peer has announced: tagged segments with nothing between them, of one WRITE or READ response, one
// behind the other in memory, each as long as the first, the last as long as is left. So the receiver knows
// where all of their bytes go before it has seen a header, and reads many of them at once. A peer that does
// otherwise has broken the protocol.
struct Run {
  uint64_t left = 0;     // bytes, with those of the segment under way
  uint32_t segment = 0;  // bytes of the first; 0: it has not begun
  RdmapOpcode opcode = RdmapOpcode::write;
  uint32_t stag = 0;
  uint64_t offset = 0;  // of the next segment
};

class StreamHost {
 public:
  // Where bytes go. May be asked again for the same bytes, to hear whether the answer still holds.
  virtual Refusal land_message(uint64_t offset, uint32_t length, Landing& out) = 0;
  virtual Refusal land_write(uint32_t stag, uint64_t offset, uint32_t length, Landing& out) = 0;
  virtual Refusal land_response(uint32_t stag, uint64_t offset, uint32_t length, Landing& out) = 0;
  // What is complete, and what a peer asks for.
  virtual Refusal message_arrived(uint64_t length, bool solicited, const uint32_t* immediate) = 0;
  virtual Refusal immediate_arrived(uint32_t immediate, uint64_t written, bool solicited) = 0;
  virtual Refusal response_arrived(uint32_t length, bool last) = 0;
  virtual Refusal atomic_answered(uint32_t id, uint64_t original) = 0;
  virtual Refusal read_ordered(const ReadOrder& order) = 0;
  virtual Refusal execute_atomic(const AtomicOrder& order, uint64_t& original) = 0;
  // Memory of a READ order that was accepted; nullptr when it is not there any more.
  virtual const std::byte* source(uint32_t stag, uint64_t offset, uint32_t length) = 0;
  // Acknowledged mode. Requests are numbered from 1.
  virtual void acknowledged(uint64_t executed) = 0;
  virtual void peer_not_ready(uint64_t executed, uint8_t rnr_timer) = 0;
  virtual void peer_ready() = 0;
  virtual void request_failed(uint64_t request, Status status) = 0;
  virtual void terminated(const Termination& termination) = 0;

 protected:
  ~StreamHost() = default;
};

class Stream {
 public:
  // Why the stream ends. The peer is told by the last words.
  struct Fault {
    Refusal refusal;
    Status own = Status::success;  // of our own oldest request; success: it is just flushed
    uint64_t request = 0;          // of the peer's, in acknowledged mode; 0: none in particular
  };

  Stream(const Agreement& agreement, uint32_t own_ird, size_t mulpdu, uint8_t rnr_timer, StreamHost& host);

  const Agreement& agreement() const { return agreement_; }

  // Receiving: fill reader().room(), tell reader().arrived(), then work().
  FpduReader& reader() { return reader_; }
  // Takes what has arrived. False: the stream is at its end, see fault().
  bool work();
  // Where we have asked for markers, all that comes goes through here instead. The result is work()'s.
  bool expects_markers() const { return stripper_.has_value(); }
  bool take_marked(std::span<const std::byte> bytes);
  bool in_segment() const { return reader_.in_segment() || (stripper_ && stripper_->in_fpdu()); }
  // Asks the host once more whether the segment under way may land; call it when others may have run.
  void revalidate();
  const std::optional<Fault>& fault() const { return fault_; }
  void break_off(const Fault& fault);
  bool was_terminated() const { return terminated_; }
  // Bytes that the peer has said are still to come, with those of the segment under way.
  uint64_t coming() const { return fault_ ? 0 : run_.left; }

  // Sending. Each compose…() fills one sealed segment; false: there is nothing of the kind.
  // A responder speaks when it was spoken to, if only to complain.
  bool may_send() const { return agreement_.initiator || heard_ || fault_; }
  bool was_heard_of() const { return heard_; }
  bool compose_control(OutSegment& out);
  // `room` is for how many segments there is room, this one included: a run is announced if that is worth it.
  bool compose_response(OutSegment& out, size_t room);
  bool is_ack_due() const { return agreement_.acknowledged && executed_ != announced_; }
  void compose_ack(OutSegment& out);
  bool compose_last_words(OutSegment& out);
  bool owes_responses() const { return !responses_.empty(); }
  bool is_in_response() const { return !responses_.empty() && responses_.front().sent > 0; }
  void offer_receive() { ready_due_ = true; }  // a receive is there for the message that was not taken

  // Requests: begin…, then payload and seal() by the caller; or whole.
  void begin_send(OutSegment& out, uint64_t offset, bool last, bool solicited, const uint32_t* immediate);
  void begin_write(OutSegment& out, uint32_t stag, uint64_t offset, uint32_t length, bool last);
  // With `left` bytes of a request to go, and room for so many segments: the bytes of a run that is worth it,
  // or 0.
  uint32_t run_within(uint64_t left, size_t room) const;
  void compose_run(OutSegment& out, uint32_t bytes);
  bool is_in_run() const { return announced_run_ > 0; }  // what is composed now has to be the rest of it
  void compose_immediate(OutSegment& out, uint32_t immediate, bool solicited);
  void compose_read(OutSegment& out, const ReadOrder& order);
  void compose_atomic(OutSegment& out, const AtomicOrder& order);
  void seal(OutSegment& out) {
    if (inserter_) [[unlikely]]
      return out.seal(*inserter_);
    out.seal(agreement_.crc);
  }
  bool sums_out() const { return agreement_.crc && !inserter_; }  // what is sealed has its checksum in it
  uint64_t count_request() { return ++requested_; }
  uint64_t requested() const { return requested_; }
  size_t mulpdu() const { return mulpdu_; }
  // Requests behind `executed` are to be sent again, beginning when resume() was called.
  void rewind(uint64_t executed);
  void resume() { restart_due_ = true; }

 private:
  struct Response {
    bool is_read = true;
    ReadOrder order;
    uint32_t sent = 0;
    uint32_t atomic_id = 0;
    uint64_t original = 0;
    uint64_t request = 0;
  };

  bool feed(std::span<const std::byte> fpdu);
  bool begin_segment();
  bool end_segment();
  bool check_untagged();
  bool check_run();
  bool place();
  bool is_request() const;
  Refusal land(uint32_t length, Landing& landing);
  bool take(const Refusal& refusal);  // false: it ends the stream
  bool end_write();
  bool end_message();
  bool end_control();
  bool take_acknowledgement();
  bool refuse(Status status, TerminateCode code);
  bool violate(TerminateCode code);  // by the peer, against the protocol
  void executed() { ++executed_; }
  uint32_t next_message(Queue queue) { return next_out_[static_cast<size_t>(queue)]++; }
  template <typename Body>
  Body body() const;
  void compose_own(OutSegment& out, AckKind kind, uint8_t status = 0, uint64_t failed = 0);

  const Agreement agreement_;
  const uint32_t own_ird_;
  const size_t mulpdu_;
  const uint8_t rnr_timer_;
  StreamHost& host_;
  FpduReader reader_;
  std::optional<MarkerStripper> stripper_;
  std::optional<MarkerInserter> inserter_;

  // In.
  SegmentHeader header_;
  std::array<uint32_t, kQueueCount> expected_;  // message number of each queue
  uint64_t progress_ = 0;                       // within the message on the send queue
  bool in_message_ = false;
  bool heard_ = false;        // the peer's first FPDU
  bool is_greeting_ = false;  // this is it, or the answer to ours, and it is just that
  bool discarding_ = false;   // requests, until the peer restarts
  Refusal late_refusal_;      // memory went away while its bytes came in
  uint64_t writing_ = 0, written_ = 0;
  Run run_;
  uint64_t executed_ = 0, announced_ = 0;
  std::deque<Response> responses_;
  std::optional<Fault> fault_;
  std::array<std::byte, sizeof(UntaggedHeader)> fault_header_{};
  size_t fault_header_size_ = 0, fault_segment_bytes_ = 0;
  bool terminated_ = false;

  // Out.
  std::array<uint32_t, kQueueCount> next_out_;
  bool sending_message_ = false;
  uint64_t announced_run_ = 0;  // bytes of it that have not been composed
  bool greeting_due_, greeting_unanswered_, not_ready_due_ = false, ready_due_ = false, restart_due_ = false;
  int last_words_ = 0;
  uint64_t requested_ = 0, confirmed_ = 0;
};

}  // namespace verbena::iwarp
