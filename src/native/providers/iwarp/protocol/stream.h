// Stream: RDMAP and DDP over one connection as a state machine without I/O. Takes and composes segments, and
// calls its host (the queue pair) for memory and requests. Receiving in stream_receive.cc, sending in
// stream_send.cc. Depends on the other protocol files and verbs/types.h only.
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

// Why a segment or request is refused: the requester's status, and the code for the TERMINATE.
struct Refusal {
  Status status = Status::success;
  TerminateCode code = TerminateCode::rdmap_local;
  bool not_ready = false;  // no receive is posted: a Verbena peer may send it again

  explicit operator bool() const { return status != Status::success || not_ready; }
};

// Where the payload of a segment is placed. Payload without pieces is discarded; that is not an error.
struct Placement {
  std::array<iovec, kMaxPieces> pieces;
  size_t count = 0;

  void add(std::byte* bytes, size_t size) {
    if (size > 0 && count < pieces.size()) pieces[count++] = {bytes, size};
  }
};

struct ReadRequest {
  uint32_t sink_stag = 0;
  uint64_t sink_offset = 0;
  uint32_t length = 0;
  uint32_t source_stag = 0;
  uint64_t source_offset = 0;
};

struct AtomicRequest {
  AtomicOperation operation = AtomicOperation::fetch_add;
  uint32_t id = 0;
  uint32_t stag = 0;
  uint64_t offset = 0;
  uint64_t add_or_swap = 0, add_or_swap_mask = 0;
  uint64_t compare = 0, compare_mask = 0;
};

// Segments that the peer has announced: tagged segments of one WRITE or READ response without other segments
// between them. They are contiguous in memory, each as long as the first; the last holds the remainder. The
// receiver thus knows the destination of all bytes before it sees a header, and reads many segments at once.
// Any other segment is a protocol error.
struct Run {
  uint64_t left = 0;     // bytes, including the current segment
  uint32_t segment = 0;  // length of the first segment; 0: it has not begun
  RdmapOpcode opcode = RdmapOpcode::write;
  uint32_t stag = 0;
  uint64_t offset = 0;  // of the next segment
};

class StreamHost {
 public:
  // Where bytes are placed. May be called again for the same bytes, to check that the placement is still
  // valid.
  virtual Refusal place_message(uint64_t offset, uint32_t length, Placement& out) = 0;
  virtual Refusal place_write(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) = 0;
  virtual Refusal place_response(uint32_t stag, uint64_t offset, uint32_t length, Placement& out) = 0;
  // A complete message or response, and requests of the peer.
  virtual Refusal message_arrived(uint64_t length, bool solicited, const uint32_t* immediate) = 0;
  virtual Refusal immediate_arrived(uint32_t immediate, uint64_t written, bool solicited) = 0;
  virtual Refusal response_arrived(uint32_t length, bool last) = 0;
  virtual Refusal atomic_answered(uint32_t id, uint64_t original) = 0;
  virtual Refusal read_requested(const ReadRequest& request) = 0;
  virtual Refusal execute_atomic(const AtomicRequest& request, uint64_t& original) = 0;
  // The memory of an accepted READ request; nullptr when it is no longer available.
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
  // Why the stream ends. compose_fault_report() reports it to the peer.
  struct Fault {
    Refusal refusal;
    Status own = Status::success;  // of our oldest request; success: it is flushed
    uint64_t request = 0;          // the peer's request in acknowledged mode; 0: no particular one
  };

  Stream(const Agreement& agreement, uint32_t own_ird, size_t mulpdu, uint8_t rnr_timer, StreamHost& host);

  const Agreement& agreement() const { return agreement_; }

  // Receiving: fill reader().room(), call reader().arrived(), then work().
  FpduReader& reader() { return reader_; }
  // Processes what has arrived. False when the stream has ended: see fault().
  bool work();
  // If we requested markers, all received bytes go through take_marked() instead, which returns what work()
  // would.
  bool expects_markers() const { return stripper_.has_value(); }
  bool take_marked(std::span<const std::byte> bytes);
  bool in_segment() const { return reader_.in_segment() || (stripper_ && stripper_->in_fpdu()); }
  // Checks with the host again whether the current segment may be placed. Needed after the queue pair's lock
  // was free.
  void revalidate();
  const std::optional<Fault>& fault() const { return fault_; }
  void set_fault(const Fault& fault);
  bool was_terminated() const { return terminated_; }
  // The bytes of the current run that are outstanding, including the current segment.
  uint64_t announced_bytes() const { return fault_ ? 0 : run_.left; }

  // Sending. Each compose…() fills and seals one segment; false: there is none of this kind. A responder may
  // send only after the first message of the initiator, or to report a fault.
  bool may_send() const { return agreement_.initiator || has_received_ || fault_; }
  bool has_received() const { return has_received_; }
  bool compose_control(OutSegment& out);
  // `room`: free segments in the batch, including this one. A run is announced if it is worthwhile.
  bool compose_response(OutSegment& out, size_t room);
  bool is_ack_due() const { return agreement_.acknowledged && executed_ != announced_; }
  void compose_ack(OutSegment& out);
  bool compose_fault_report(OutSegment& out);
  bool has_pending_responses() const { return !responses_.empty(); }
  bool is_in_response() const { return !responses_.empty() && responses_.front().sent > 0; }
  void offer_receive() { ready_due_ = true; }  // a receive is posted for the message that was not accepted

  // Requests: begin…() leaves payload and seal() to the caller; compose…() does it all.
  void begin_send(OutSegment& out, uint64_t offset, bool last, bool solicited, const uint32_t* immediate);
  void begin_write(OutSegment& out, uint32_t stag, uint64_t offset, uint32_t length, bool last);
  // The bytes of a worthwhile run, or 0, when a request has `left` bytes to send and the batch has `room`
  // free segments.
  uint32_t run_length(uint64_t left, size_t room) const;
  void compose_run(OutSegment& out, uint32_t bytes);
  bool is_in_run() const { return announced_run_ > 0; }  // only the rest of the run may be composed now
  void compose_immediate(OutSegment& out, uint32_t immediate, bool solicited);
  void compose_read(OutSegment& out, const ReadRequest& request);
  void compose_atomic(OutSegment& out, const AtomicRequest& request);
  void seal(OutSegment& out) {
    if (inserter_) [[unlikely]]
      return out.seal(*inserter_);
    out.seal(agreement_.crc);
  }
  bool sums_out() const {
    return agreement_.crc && !inserter_;
  }  // a sealed segment contains the checksum of its payload
  uint64_t count_request() { return ++requested_; }
  uint64_t requested() const { return requested_; }
  size_t mulpdu() const { return mulpdu_; }
  // Requests behind `executed` are sent again after resume().
  void rewind(uint64_t executed);
  void resume() { restart_due_ = true; }

 private:
  struct Response {
    bool is_read = true;
    ReadRequest read;
    uint32_t sent = 0;
    uint32_t atomic_id = 0;
    uint64_t original = 0;
    uint64_t request_number = 0;
  };

  bool feed(std::span<const std::byte> fpdu);
  bool begin_segment();
  bool end_segment();
  bool check_untagged();
  bool check_run();
  bool place();
  bool is_request() const;
  Refusal find_placement(uint32_t length, Placement& placement);
  bool accept(const Refusal& refusal);  // false: the stream has ended
  bool end_write();
  bool end_message();
  bool end_control();
  bool take_acknowledgement();
  bool refuse(Status status, TerminateCode code);
  bool protocol_error(TerminateCode code);  // ends the stream because of the peer
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
  std::array<uint32_t, kQueueCount> expected_;  // next message number of each queue
  uint64_t progress_ = 0;                       // bytes of the current message on the send queue
  bool in_message_ = false;
  bool has_received_ = false;  // the peer's first FPDU has arrived
  bool is_rtr_ = false;        // the current segment is only an RTR message or the response to ours
  bool discarding_ = false;    // requests are dropped until the peer restarts
  Refusal late_refusal_;       // the memory became invalid while its bytes arrived
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
  uint64_t announced_run_ = 0;  // bytes of the run that were not composed yet
  bool rtr_due_, rtr_read_pending_, not_ready_due_ = false, ready_due_ = false, restart_due_ = false;
  int fault_reports_ = 0;
  uint64_t requested_ = 0, confirmed_ = 0;
};

}  // namespace verbena::iwarp
