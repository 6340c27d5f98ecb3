// A session with one peer, which outlives its links. Messages are numbered and kept until the peer has
// acknowledged them. A new link replays the unacknowledged ones, and the receiver drops those it already has:
// no message is lost or delivered twice. Every member needs the node's lock.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/node/metrics.h"
#include "transport/node/reply_spin_policy.h"
#include "transport/session/link.h"
#include "transport/session/message_layout.h"
#include "transport/session/operation.h"
#include "transport/session/sequence.h"

namespace verbena::transport {

class Capture;
class Node;

// Whether the request was wrong rather than the link: then it fails alone, and is not repeated on the next
// link.
bool is_own_fault(Status status);

struct SessionOptions {
  uint64_t id = 0;
  std::string peer;
  uint64_t max_message_bytes = 64u << 20;
  uint32_t max_serving = 4096;  // requests being served by Python at once; more fail as `busy`
  uint32_t max_waiting = 4096;  // outgoing messages that wait for the window
  uint32_t fragment_bytes = 1u << 20;
};

// What this session may do with a region of the peer on the present link.
struct RemoteRegion {
  uint64_t addr = 0, length = 0;
  uint32_t rkey = 0, access = 0;
  bool known = false, asked = false;
  Outcome refused = Outcome::ok;  // otherwise the reason why it may not be used
  std::vector<Operation*> waiting;
};

// One of several READs or WRITEs of registered memory that complete as one operation.
struct GatherPiece {
  uint64_t region = 0, offset = 0;
  std::byte* local = nullptr;
  uint32_t length = 0;
  Registration* memory = nullptr;
  std::optional<uint32_t>* crc32c = nullptr;  // receives the CRC32C of the bytes if the wire computed it
};

class Session {
 public:
  Session(Node& node, SessionOptions options, std::shared_ptr<EventQueue> control,
          std::shared_ptr<EventQueue> requests);
  ~Session();

  uint64_t id() const { return options_.id; }
  uint64_t max_message_bytes() const { return options_.max_message_bytes; }
  const std::string& peer() const { return options_.peer; }
  const SessionOptions& options() const { return options_; }
  Link* link() const { return link_ && !link_->failed() ? link_.get() : nullptr; }
  // The link was given up, but its queue pair may still be open and access memory: see release_link().
  bool has_lost_link() const { return link_ && link_->failed(); }
  uint64_t links() const { return links_; }  // links so far; identifies the present one
  bool is_over() const { return over_; }
  const Sequence& sequence() const { return sequence_; }
  size_t serving() const { return serving_; }
  size_t waiting() const { return unacknowledged_.size() - transmitted_; }
  // The payloads that are kept until the peer has acknowledged their messages.
  uint64_t unacknowledged_bytes() const { return unacknowledged_bytes_; }

  // Uses a new link. The peer has received messages up to `received` at least and accepts `window` more; the
  // rest is replayed. The peer knows that this side has received up to `acknowledged`. The former link must
  // have been closed at both ends, so that none of its operations can arrive.
  void attach(std::unique_ptr<Link> link, uint64_t received, uint64_t acknowledged, uint32_t window,
              uint32_t peer_buffer_bytes);
  // Gives the link up; `report`: with an event to Python.
  void lose_link(Status status, std::string_view why, bool report = true);
  // Frees the lost link's buffers. Its queue pair must have been closed.
  void release_link();
  // What the peer may use ends: one region, or all of an audience.
  void end_memory_lease(uint64_t region) {
    if (link_) link_->end_memory_lease(region);
  }
  void end_memory_leases(const Audience& audience) {
    if (link_) link_->end_memory_leases(audience);
  }
  // This session alone.
  const std::shared_ptr<Audience>& audience() const { return audience_; }
  // Ends the session; every open operation fails.
  void end(std::string_view why);

  // Calls a method of the peer. Null: too many messages wait. See Operation::finished, report() and then().
  Operation* call(uint32_t method, std::span<const std::byte> payload);
  // Reports the end of the operation to a queue instead of a waiting thread. Returns its id, for cancel().
  uint64_t report(Operation& operation, std::shared_ptr<EventQueue> queue, uint64_t token);
  // Calls `function` at the end of the operation, under the node's lock, on the thread that handles the
  // reply.
  static void then(Operation& operation, std::function<void(Operation&)> function) {
    operation.then = std::move(function);
  }
  // Replies to a request. False: the payload is too long.
  bool reply(uint64_t call, std::span<const std::byte> payload);
  void fail(uint64_t call, Outcome outcome, std::string_view why);
  void answered(uint64_t call);  // Python has replied to a request
  void cancel(Operation& operation);
  void send_close();

  // READ or WRITE of a region of the peer. Without a registration the bytes pass through a message buffer:
  // a WRITE's `local` may be reused at once; a READ fills `local` at its end (null: they are the answer).
  // `is_summed`: sets Operation::crc32c if the wire can compute it while it copies.
  Operation* operate(Opcode opcode, uint64_t region, uint64_t offset, std::byte* local, uint32_t length,
                     Registration* registration, bool is_summed = false);
  // READs or WRITEs that complete as one operation with the last of them. Unlike those of operate() they are
  // not repeated on another link, but fail. Null: there is no link or no room now, a region is not known yet
  // and is being resolved, or a piece is not allowed. Throws if the wire cannot register the memory.
  Operation* gather(Opcode opcode, std::span<const GatherPiece> pieces);
  static constexpr size_t kMaxGathered = 64;
  // The longest operation that needs no registration.
  uint32_t buffer_bytes() const;
  // For bulk transfers: the region, which may still be unresolved. Null: there is no link.
  const RemoteRegion* region(uint64_t key);
  // For bulk transfers: whether one WRITE and one message can be sent now.
  bool may_stream() const;
  // An unsignalled WRITE, confirmed by the message that follows it. False: the link broke. `crc32c`, unless
  // null, is set if the wire computed the CRC32C while copying.
  bool stream(const std::byte* local, uint32_t length, uint32_t lkey, uint64_t remote_addr, uint32_t rkey,
              std::optional<uint32_t>* crc32c);
  // Writes a few bytes to the beginning of a region with an unsignalled inline WRITE, which is not repeated
  // if the link breaks. False: not possible now, or too long to be inline. `bytes` may be reused when this
  // returns.
  bool hint(uint64_t region, std::span<const std::byte> bytes);

  // For bulk transfers: drops operations on this memory that are not posted. True: none is posted either, so
  // that the wire no longer accesses the memory.
  bool withdraw(const Registration& registration);

  void on_message(std::span<const std::byte> bytes);
  void on_completion(const Completion& completion);
  // `driven` is the time of the node's DriverClock: the silence of the peer is measured by it.
  void tick(uint64_t now, uint64_t driven, uint64_t heartbeat_ns, uint64_t silence_ns);

  Metrics& metrics() { return *metrics_; }
  ReplySpinPolicy call_spin_policy, operation_spin_policy;
  const std::vector<std::pair<std::string, std::shared_ptr<Metrics>>>& metrics_by_wire() const {
    return metrics_by_wire_;
  }

 private:
  // A payload that the peer pulls.
  struct Offered {
    Offered(std::shared_ptr<Memory> memory, size_t size);
    std::shared_ptr<Memory> bytes;
    size_t length;
    uint32_t crc;
    Registration registration;
    std::shared_ptr<MemoryWindow> window;  // on the present link
  };
  struct Outgoing {
    MessageHeader header;
    std::vector<std::byte> payload;  // empty while a buffer holds it
    std::shared_ptr<Offered> offered;
    MessageBuffer* buffer = nullptr;
    bool repeated = false;
    uint64_t payload_bytes = 0;  // wherever they are kept
  };
  // A payload that this side pulls.
  struct Pull {
    MessageHeader header;
    Reference reference;
    std::shared_ptr<Memory> memory;
    std::unique_ptr<Registration> registration;  // declared after the memory: destroyed first
    uint64_t asked = 0, arrived = 0;
    uint32_t in_flight = 0;
    bool admitted = false;  // its memory is counted in pulled_bytes_
  };

  // Numbers a message and transmits it if possible. False: the payload is too long.
  bool submit(MessageKind kind, uint64_t call, uint32_t method, std::span<const std::byte> payload);
  void flush();
  bool may_transmit(const Outgoing& message) const;
  // Sends the next message in order. False: not possible yet, or the link broke.
  bool transmit(Outgoing& message, std::span<const std::byte> payload);
  bool post_message(const MessageBuffer& buffer, uint32_t bytes);
  void record_sent(std::span<const std::byte> bytes);
  void offer(Outgoing& message, std::span<const std::byte> payload);
  void give_up(Outgoing& message, std::string_view why);
  void send_unsequenced(MessageKind kind);
  void acknowledge_if_due();
  void forget_acknowledged();
  void deliver(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload);
  void deliver_request(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload);
  void deliver_answer(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload);

  void start_pull(const Message& message);
  bool admit(Pull& pull);
  void refuse_pull(const Pull& pull, Outcome outcome, std::string_view why);
  void continue_pull(uint64_t sequence);
  void finish_pull(uint64_t sequence);

  bool post_operation(Operation& operation);
  void post_pending();
  void finish_operation(Operation& operation, Status status);
  void capture_operation(Capture& capture, const Operation& operation, Status status);
  void queue_operation(Operation& operation);
  static bool passes_through_buffer(const Operation& operation);
  static void keep_bytes(Operation& operation, const std::byte* from);
  void refuse_operation(Operation& operation, Outcome outcome);
  void finish(Operation& operation, Outcome outcome);
  void blame_gathered(uint64_t position, Status status);
  bool resolve(uint64_t key, RemoteRegion& entry);
  bool write_unsignaled(const Sge& piece, uint32_t flags, uint64_t remote_addr, uint32_t rkey,
                        std::optional<uint32_t>* crc32c);
  void resolved(uint64_t key, Operation& answer);

  Node& node_;
  const SessionOptions options_;
  const std::shared_ptr<EventQueue> control_, requests_;
  const std::shared_ptr<Audience> audience_ = std::make_shared<Audience>(false);
  std::unique_ptr<Link> link_;
  uint64_t links_ = 0;
  uint32_t peer_buffer_bytes_ = 0;
  bool over_ = false;

  Sequence sequence_;
  uint64_t acknowledged_to_peer_ = 0;
  std::deque<Outgoing> unacknowledged_;  // in order; the first `transmitted_` were sent on this link
  size_t transmitted_ = 0;
  uint64_t unacknowledged_bytes_ = 0;
  std::map<uint64_t, std::shared_ptr<Pull>> pulls_;  // by sequence
  uint64_t pulled_bytes_ = 0;                        // memory of the admitted ones
  size_t serving_ = 0;
  std::unordered_multimap<uint64_t, uint64_t>
      served_bytes_by_call_;  // pulled payloads of requests being served
  uint64_t served_bytes_ = 0;

  std::unordered_map<uint64_t, RemoteRegion> regions_;  // of this link
  RemoteRegion refused_region_;                         // what region() returned last, if it was refused
  std::deque<Operation*> pending_;     // operations that wait for a link or for room in the send queue
  std::vector<Operation*> posted_;     // operations on the link
  std::vector<SendRequest> gathered_;  // scratch space of gather()
  std::vector<Sge> gathered_at_;

  std::vector<std::pair<std::string, std::shared_ptr<Metrics>>> metrics_by_wire_;
  std::shared_ptr<Metrics> metrics_;
};

}  // namespace verbena::transport
