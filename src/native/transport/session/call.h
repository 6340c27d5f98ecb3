// What somebody waits for: a call of ours, or a one-sided operation. Kept in a table that peers' answers and
// completions index, so every index off the wire is checked here. The node's lock covers it, but `finished`.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <vector>

#include "transport/memory/registration.h"
#include "transport/node/events.h"
#include "transport/session/slots.h"
#include "verbs/types.h"

namespace verbena::transport {

class Session;

struct Call {
  std::atomic<bool> finished{false};  // set last: the waiter may then read the rest without the lock
  Outcome outcome = Outcome::ok;
  Status status = Status::success;
  std::vector<std::byte> result;  // keeps its capacity from one use to the next
  Bytes long_result;              // instead, when it was pulled

  std::span<const std::byte> answer() const {
    return long_result.span().empty() ? std::span<const std::byte>(result) : long_result.span();
  }

 private:
  friend class CallTable;
  friend class Session;
  friend class Node;
  uint32_t index = 0, generation = 0;
  bool used = false;
  Session* session = nullptr;
  uint64_t started_ns = 0;

  // Who is to know: a loop's queue, a sleeping thread, or native code.
  std::shared_ptr<EventQueue> queue;
  uint64_t token = 0;
  const EventFd* sleeper = nullptr;
  std::function<void(Call&)> then;  // ends the call itself

  // A one-sided operation; `opcode` send means: none.
  Opcode opcode = Opcode::send;
  uint64_t region = 0, offset = 0;  // 0: `remote_addr` and `rkey` are valid on this link, and only there
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  std::byte* local = nullptr;
  uint32_t length = 0;
  Registration* registration = nullptr;  // null: through `bounce`, READs into `result`, WRITEs from `local`
  Slot* bounce = nullptr;
  uint64_t position = 0;
  bool once = false;  // not to be repeated on another link
};

class CallTable {
 public:
  Call& begin(Session& session) {
    if (free_.empty()) {
      Call& fresh = calls_.emplace_back();
      fresh.index = static_cast<uint32_t>(calls_.size() - 1);
      free_.push_back(&fresh);
    }
    Call& call = *free_.back();
    free_.pop_back();
    call.used = true;
    call.session = &session;
    return call;
  }
  void end(Call& call) {
    call.used = false;
    ++call.generation;
    call.finished.store(false, std::memory_order_relaxed);
    call.outcome = Outcome::ok;
    call.status = Status::success;
    call.result.clear();
    call.long_result = {};
    call.session = nullptr;
    call.queue = nullptr;
    call.sleeper = nullptr;
    call.then = nullptr;
    call.opcode = Opcode::send;
    call.region = 0;
    call.registration = nullptr;
    call.bounce = nullptr;
    call.once = false;
    free_.push_back(&call);
  }
  static uint64_t id(const Call& call) { return uint64_t{call.generation} << 32 | call.index; }
  // Null: it has ended, or never was, or is another session's.
  Call* find(uint64_t id, const Session& session) {
    const auto index = static_cast<uint32_t>(id);
    if (index >= calls_.size()) return nullptr;
    Call& call = calls_[index];
    const bool same = call.used && call.generation == static_cast<uint32_t>(id >> 32);
    return same && call.session == &session ? &call : nullptr;
  }
  Call& at(uint32_t index) { return calls_[index]; }
  template <typename Function>
  void each_of(const Session& session, Function function) {
    for (Call& call : calls_) {
      if (call.used && call.session == &session) function(call);
    }
  }

 private:
  std::deque<Call> calls_;  // never moves
  std::vector<Call*> free_;
};

}  // namespace verbena::transport
