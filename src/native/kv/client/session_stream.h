// A client's stream to a store over a session: sends bytes of RESP in the calls of session_layout.h and
// collects the bytes that the store returns.
// Depends on the protocol and the transport; not on the engine or Python.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kv/protocol/session_layout.h"
#include "transport/node/methods.h"
#include "transport/node/node.h"
#include "util/error.h"

namespace verbena::kv {

// `Caller` defines how the calling thread locks the node and waits for an operation:
//   static std::unique_lock<YieldingMutex> lock(transport::Node& node);
//   static bool wait(transport::Node& node, transport::Operation& call, double timeout_s);  // false:
//   time-out
// wait() may throw, for example because of a signal. It is a template parameter because every command uses
// it. One thread at a time may use a stream. Every function throws Error if the session fails.
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
  void send(std::string_view message, double timeout_s, std::string& received) {
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

  // Waits for output of the stream and appends it to `received`. False: there was none in time.
  bool receive(double timeout_s, std::string& received) {
    if (!receiving_) {
      const auto held = Caller::lock(node_);
      receiving_ = &start(kReceive, header());
    }
    if (!Caller::wait(node_, *receiving_, timeout_s)) return false;
    finish(*std::exchange(receiving_, nullptr), received);
    return true;
  }

  // Cancels the kv.receive that is open, if any.
  void cancel_receive() {
    if (receiving_) cancel(*std::exchange(receiving_, nullptr));
  }

  // Ends the stream at the store, without waiting for the reply.
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
    if (!call) throw Error("closed", kOperation, "the session has ended, or too many messages wait");
    return *call;
  }

  // Starts a `kv` call. Null: the reply came immediately and has been appended.
  transport::Operation* request(std::string_view message, std::string& received) {
    const auto held = Caller::lock(node_);
    transport::Operation& call = start(kRequest, message);
    if (receiving_ || !node_.spin_for_reply(call)) return &call;
    const auto answer = call.answer();
    received.append(reinterpret_cast<const char*>(answer.data()), answer.size());
    node_.operations().end(call);
    return nullptr;
  }

  // Sends one message, waits and appends the reply.
  void exchange(std::string_view message, double timeout_s, std::string& received) {
    transport::Operation* const call = request(message, received);
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
    // The reply of an earlier kv.receive precedes this one.
    if (receiving_ && receiving_->finished.load()) finish(*std::exchange(receiving_, nullptr), received);
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

  // Ends a finished call and appends its reply. Throws Error if the call failed.
  void finish(transport::Operation& call, std::string& received) {
    using transport::Outcome;
    const Outcome outcome = call.outcome;
    const auto answer = call.answer();
    std::string bytes(reinterpret_cast<const char*>(answer.data()), answer.size());
    {
      const auto held = Caller::lock(node_);
      node_.operations().end(call);
    }
    if (outcome == Outcome::ok) return (void)received.append(bytes);
    if (outcome == Outcome::no_such_method) bytes = "the peer serves no store";
    const ErrorCode code = outcome == Outcome::session_failed ? ErrorCode("closed")
                           : outcome == Outcome::too_long     ? ErrorCode("message_too_long")
                                                              : "remote_failure";
    throw Error(code, kOperation, bytes);
  }

  transport::Node& node_;
  transport::Session& session_;
  const uint32_t number_;
  // A kv.receive without a reply yet. It is kept after a time-out, because its reply would be lost otherwise.
  transport::Operation* receiving_ = nullptr;
  bool is_cut_ = false;  // a command was sent in part: the store would take further bytes for the rest of it
};

}  // namespace verbena::kv
