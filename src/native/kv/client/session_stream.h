// A client's stream to a store over a session: sends bytes of RESP in the calls of session_layout.h and
// collects the bytes that the store returns.
// Depends on the protocol and the transport; not on the engine or Python.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kv/client/received_bytes.h"
#include "kv/protocol/session_layout.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"
#include "util/error.h"

namespace verbena::kv {

// `Caller` defines how the calling thread locks the node and waits for an operation:
//   static std::unique_lock<YieldingMutex> lock(transport::Node& node);
//   static bool wait(transport::Node& node, transport::Operation& call, double timeout_s);  // false:
//   time-out
//   static void pause();  // lets other threads run for a moment
// wait() may throw, for example because of a signal. It is a template parameter because every command uses
// it. Two threads may use a stream if one of them only receives, and if no other call runs but while a thread
// is in wait() or pause(). Every function throws Error if the session fails.
template <typename Caller>
class SessionStream {
 public:
  SessionStream(transport::Node& node, transport::Session& session, uint32_t number)
      : node_(node), session_(session), number_(number) {}

  uint32_t number() const { return number_; }

  // The start of a message, to which the caller appends commands. It has room for a short command: one
  // allocation instead of four.
  std::string header() const {
    constexpr size_t kShort = 128;
    const StreamHeader header{number_};
    std::string out;
    out.reserve(kShort);
    return out.append(reinterpret_cast<const char*>(&header), sizeof header);
  }

  // Sends a message that begins with header(), in several parts if it is too long for one, and appends the
  // bytes that the store has returned by then to `received`.
  void send(std::string_view message, double timeout_s, ReceivedBytes& received) {
    if (is_cut_) throw Error("closed", kOperation, "a long command was interrupted half-way");
    const size_t most = session_.max_message_bytes();
    if (message.size() <= most || most <= sizeof(StreamHeader)) return exchange(message, timeout_s, received);
    const std::string_view header = message.substr(0, sizeof(StreamHeader));
    is_cut_ = true;
    for (size_t at = header.size(); at < message.size();) {
      const std::string_view part = message.substr(at, most - header.size());
      exchange(std::string(header).append(part), timeout_s, received);
      at += part.size();
    }
    is_cut_ = false;
  }

  // Sends a message that begins with header(), no longer than max_message_bytes(). Returns the call, for the
  // caller to end; null: its reply came within a few microseconds and has been appended. `spins` must be
  // false while a kv.receive is open, whose reply comes first.
  transport::Operation* start_send(std::string_view message, bool spins, ReceivedBytes& received) {
    return request(message, spins, received);
  }

  // Waits for output of the stream and appends it to `received`. False: there was none in time.
  bool receive(double timeout_s, ReceivedBytes& received) {
    if (!receiving_) {
      const auto held = Caller::lock(node_);
      receiving_ = &start(kReceive, header());
    }
    bool done = false;
    is_waiting_ = true;
    try {
      done = Caller::wait(node_, *receiving_, timeout_s);
    } catch (...) {
      is_waiting_ = false;
      throw;
    }
    is_waiting_ = false;
    if (done) finish(*std::exchange(receiving_, nullptr), received);
    return done;
  }

  // Cancels the kv.receive that is open, if any. A thread that waits for it ends it.
  void cancel_receive() {
    if (receiving_ && !is_waiting_) cancel(*std::exchange(receiving_, nullptr));
  }

  // Ends the stream at the store, without waiting for the reply. The store answers an open kv.receive.
  void close() {
    cancel_receive();
    const auto held = Caller::lock(node_);
    if (session_.is_over()) return;
    const std::string message = header();
    if (transport::Operation* call = session_.call(kClose, std::as_bytes(std::span(message)))) {
      session_.cancel(*call);
    }
  }

 private:
  static constexpr const char* kOperation = "talk to the store";
  static inline const uint32_t kRequest = transport::method::of_name(session_method::kRequest);
  static inline const uint32_t kReceive = transport::method::of_name(session_method::kReceive);
  static inline const uint32_t kClose = transport::method::of_name(session_method::kClose);

  // Starts a call. The caller holds the node's lock.
  transport::Operation& start(uint32_t method, std::string_view bytes) {
    transport::Operation* call = session_.call(method, std::as_bytes(std::span(bytes)));
    if (call) return *call;
    if (session_.is_over()) throw Error("session_failed", kOperation, "the session has ended");
    throw Error("peer_busy", kOperation, "too many messages wait to be sent");
  }

  // Starts a `kv` call. Null: the reply came immediately and has been appended.
  transport::Operation* request(std::string_view message, bool spins, ReceivedBytes& received) {
    const auto held = Caller::lock(node_);
    transport::Operation& call = start(kRequest, message);
    if (!spins || !node_.spin_for_reply(call)) return &call;
    take_answer(call, received);
    node_.operations().end(call);
    return nullptr;
  }

  // Sends one message, waits and appends the reply.
  void exchange(std::string_view message, double timeout_s, ReceivedBytes& received) {
    transport::Operation* const call = request(message, !receiving_, received);
    if (!call) return;
    bool done = false;
    try {
      done = Caller::wait(node_, *call, timeout_s);
    } catch (...) {
      cancel(*call);
      throw;
    }
    if (!done) {
      cancel(*call);
      throw Error("call_timeout", kOperation, "no answer in time");
    }
    // The reply of an earlier kv.receive precedes this one. The thread that waits for it takes it.
    while (is_waiting_ && receiving_ && receiving_->finished.load()) Caller::pause();
    if (!is_waiting_ && receiving_ && receiving_->finished.load()) {
      finish(*std::exchange(receiving_, nullptr), received);
    }
    finish(*call, received);
  }

  void cancel(transport::Operation& call) {
    const auto held = Caller::lock(node_);
    if (call.finished.load()) {
      node_.operations().end(call);
    } else {
      session_.cancel(call);
    }
  }

  static void take_answer(transport::Operation& call, ReceivedBytes& received) {
    if (!call.long_result.span().empty()) return received.append(std::move(call.long_result));
    const std::span<const std::byte> answer = call.result;
    received.append(std::string_view(reinterpret_cast<const char*>(answer.data()), answer.size()));
  }

  // Ends a finished call and appends its reply. Throws Error if the call failed.
  void finish(transport::Operation& call, ReceivedBytes& received) {
    using transport::Outcome;
    const Outcome outcome = call.outcome;
    std::string why;
    if (outcome == Outcome::ok) {
      take_answer(call, received);
    } else {
      why = std::string(reinterpret_cast<const char*>(call.answer().data()), call.answer().size());
    }
    {
      const auto held = Caller::lock(node_);
      node_.operations().end(call);
    }
    switch (outcome) {
      case Outcome::ok:
        return;
      case Outcome::session_failed:
        throw Error("session_failed", kOperation, why);
      case Outcome::busy:
        throw Error("peer_busy", kOperation, why);
      case Outcome::too_long:
        throw Error("message_too_long", kOperation, why);
      case Outcome::no_such_method:
        throw Error("no_such_method", kOperation, "the peer serves no store");
      default:
        if (why == kStreamClosed) throw Error("closed", kOperation, why);
        throw Error("remote_failure", kOperation, why);
    }
  }

  transport::Node& node_;
  transport::Session& session_;
  const uint32_t number_;
  // A kv.receive without a reply yet. It is kept after a time-out, because its reply would be lost otherwise.
  transport::Operation* receiving_ = nullptr;
  bool is_waiting_ = false;  // a thread waits for it
  bool is_cut_ = false;  // a command was sent in part: the store would take further bytes for the rest of it
};

}  // namespace verbena::kv
