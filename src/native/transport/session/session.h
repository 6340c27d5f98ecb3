// A conversation with one peer that outlives its links. Messages are numbered and kept until the peer has
// acknowledged them; a new link replays the rest, and the receiver drops what it had: nothing is lost and
// nothing is done twice. Every member needs the node's lock.
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
#include "transport/node/promptness.h"
#include "transport/session/call.h"
#include "transport/session/link.h"
#include "transport/session/message_layout.h"
#include "transport/session/sequence.h"

namespace verbena::transport {

class Capture;
class Node;

// The request was wrong, not the link: it fails by itself, and is not tried again on the next link.
bool is_own_fault(Status status);

struct SessionOptions {
  uint64_t id = 0;
  std::string peer;
  uint64_t max_message_bytes = 64u << 20;
  uint32_t max_serving = 4096;  // requests in the program's hands at once; more are answered `busy`
  uint32_t max_waiting = 4096;  // messages of ours that wait for the window
  uint32_t fragment_bytes = 1u << 20;
};

// A remote region as this session may use it on the present link.
struct RemoteRegion {
  uint64_t addr = 0, length = 0;
  uint32_t rkey = 0, access = 0;
  bool known = false, asked = false;
  Outcome refused = Outcome::ok;  // else: why we may not use it
  std::vector<Call*> waiting;
};

// One READ among several that are told of as one, into registered memory.
struct GatherPiece {
  uint64_t region = 0, offset = 0;
  std::byte* local = nullptr;
  uint32_t length = 0;
  Registration* memory = nullptr;
  std::optional<uint32_t>* crc32c = nullptr;  // for the sum of what came, if the wire has it at once
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
  uint64_t links() const { return links_; }  // how many there were: tells one from the next
  bool is_over() const { return over_; }
  const Sequence& sequence() const { return sequence_; }
  size_t serving() const { return serving_; }
  size_t waiting() const { return unacknowledged_.size() - transmitted_; }

  // The peer has received ours up to `received` at least and takes `window` more; replays the rest. It knows
  // that we have received up to `told`. Whatever link there was must have been closed at both ends, so that
  // nothing of it can land any more.
  void attach(std::unique_ptr<Link> link, uint64_t received, uint64_t told, uint32_t window,
              uint32_t peer_slot_bytes);
  // The link is of no use any more; tells the program, unless it knows.
  void lose_link(Status status, std::string_view why, bool tell = true);
  // The lost link's queue pair has been closed: its buffers can go.
  void release_link();
  // Ends everything that waits, for good.
  void end(std::string_view why);

  // A call of ours; null: too many wait. The answer arrives by the call's `finished`.
  Call* call(uint32_t method, std::span<const std::byte> payload);
  // Its end will be told to a queue instead of a waiter; returns its name, for cancel().
  uint64_t report(Call& call, std::shared_ptr<EventQueue> queue, uint64_t token);
  // Its end is native code's, which is called with the lock wherever the answer is found.
  static void then(Call& call, std::function<void(Call&)> function) { call.then = std::move(function); }
  // A request's answer. False: too long.
  bool reply(uint64_t call, std::span<const std::byte> payload);
  void fail(uint64_t call, Outcome outcome, std::string_view why);
  void answered() { --serving_; }  // one of the program's own
  void cancel(Call& call);
  void say_goodbye();

  // READ or WRITE of a region of the peer's. Without a registration the bytes pass through a slot, and
  // `local` is the caller's own again when this returns.
  Call* operate(Opcode opcode, uint64_t region, uint64_t offset, std::byte* local, uint32_t length,
                Registration* registration);
  // READs that end as one call, when the last has arrived. Unlike operate()'s they are not repeated on
  // another link, but fail. Null: they cannot leave now, for want of a link, of room, or of a region that is
  // not known yet, which is then asked for.
  Call* gather(std::span<const GatherPiece> pieces);
  static constexpr size_t kMostGathered = 64;
  // The longest operation that needs no registration.
  uint32_t slot_bytes() const;
  // Bulk: the region, which may be being asked for still; null: there is no link.
  const RemoteRegion* region(uint64_t key);
  // Bulk: room for one WRITE and one message that leave at once.
  bool may_stream() const;
  // An unreported WRITE; the message that follows it proves it. False: the link broke.
  // `crc32c`, if it is wanted, is set if the wire has summed what it copied: a sum that nobody wants costs
  // time.
  bool stream(const std::byte* local, uint32_t length, uint32_t lkey, uint64_t remote_addr, uint32_t rkey,
              std::optional<uint32_t>* crc32c);
  // A few bytes by an unreported WRITE to the beginning of a region; they are the caller's again when this
  // returns. False: not now, or they are too many to travel inline. What is lost with a link stays lost.
  bool hint(uint64_t region, std::span<const std::byte> bytes);

  // Bulk, on its way out: takes back what is not on the wire; true: nothing can touch the memory any more.
  bool let_go(const Registration& registration);

  void on_message(std::span<const std::byte> bytes);
  void on_completion(const Completion& completion);
  void tick(uint64_t now, uint64_t heartbeat_ns, uint64_t silence_ns);

  Metrics& metrics() { return *metrics_; }
  Promptness calls_promptness, operations_promptness;
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
  };
  struct Outgoing {
    MessageHeader header;
    std::vector<std::byte> payload;  // unless a slot has it
    std::shared_ptr<Offered> offered;
    Slot* slot = nullptr;
    bool repeated = false;
  };
  // A payload that we pull.
  struct Pull {
    MessageHeader header;
    Reference reference;
    std::shared_ptr<Memory> memory;
    std::unique_ptr<Registration> registration;  // after the memory: it goes first
    uint64_t asked = 0, arrived = 0;
    uint32_t under_way = 0;
    bool admitted = false;  // its memory counts
  };

  // Takes the next number; leaves at once if it may.
  bool submit(MessageKind kind, uint64_t call, uint32_t method, std::span<const std::byte> payload);
  void flush();
  bool may_leave(const Outgoing& message) const;
  // The next message in line leaves; false: it cannot yet, or the link broke.
  bool transmit(Outgoing& message, std::span<const std::byte> payload);
  bool post_message(const Slot& slot, uint32_t bytes);
  void offer(Outgoing& message, std::span<const std::byte> payload);
  void give_up(Outgoing& message, std::string_view why);
  void send_unsequenced(MessageKind kind);
  void acknowledge_if_due();
  void forget_acknowledged();
  void deliver(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload);
  void deliver_answer(const MessageHeader& header, std::span<const std::byte> payload, Bytes* long_payload);

  void start_pull(const Message& message);
  bool admit(Pull& pull);
  void refuse_pull(const Pull& pull, Outcome outcome, std::string_view why);
  void continue_pull(uint64_t sequence);
  void finish_pull(uint64_t sequence);

  bool post_operation(Call& call);
  void post_pending();
  void finish_operation(Call& call, Status status);
  void capture_operation(Capture& capture, const Call& call, Status status);
  void queue_operation(Call& call);
  static bool passes_through_slot(const Call& call);
  static void keep_bytes(Call& call, const std::byte* from);
  void refuse_operation(Call& call, Outcome outcome);
  void finish(Call& call, Outcome outcome);
  bool resolve(uint64_t key, RemoteRegion& entry);
  bool write_unreported(const Sge& piece, uint32_t flags, uint64_t remote_addr, uint32_t rkey,
                        std::optional<uint32_t>* crc32c);
  void resolved(uint64_t key, Call& answer);

  Node& node_;
  const SessionOptions options_;
  const std::shared_ptr<EventQueue> control_, requests_;
  std::unique_ptr<Link> link_;
  uint64_t links_ = 0;
  uint32_t peer_slot_bytes_ = 0;
  bool over_ = false;

  Sequence sequence_;
  uint64_t acknowledged_to_peer_ = 0;
  std::deque<Outgoing> unacknowledged_;  // in order; the first `transmitted_` are on the link
  size_t transmitted_ = 0;
  std::map<uint64_t, std::shared_ptr<Pull>> pulls_;  // by sequence
  uint64_t pulled_bytes_ = 0;                        // memory of those admitted
  size_t serving_ = 0;

  std::unordered_map<uint64_t, RemoteRegion> regions_;  // of this link
  std::deque<Call*> pending_;                           // operations that wait for a link or for room
  std::vector<Call*> posted_;                           // operations on the link
  std::vector<SendRequest> gathered_;                   // gather()'s own, kept for their memory
  std::vector<Sge> gathered_to_;

  std::vector<std::pair<std::string, std::shared_ptr<Metrics>>> metrics_by_wire_;
  std::shared_ptr<Metrics> metrics_;
};

}  // namespace verbena::transport
