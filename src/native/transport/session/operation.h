// An operation that this side has started and waits for: a call of a remote method, or a one-sided READ or
// WRITE. Kept in a table that is indexed by replies and completions, so every index off the wire is checked
// here. Protected by the node's lock, except `finished`.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <vector>

#include "transport/memory/registration.h"
#include "transport/node/events.h"
#include "transport/session/buffer_pool.h"
#include "verbs/types.h"

namespace verbena::transport {

class Session;

struct Operation {
  std::atomic<bool> finished{false};  // set last: the waiter may then read the rest without the lock
  Outcome outcome = Outcome::ok;
  Status status = Status::success;
  std::vector<std::byte> result;   // keeps its capacity between uses
  Bytes long_result;               // set instead of `result` for a payload that was pulled
  std::optional<uint32_t> crc32c;  // of the bytes of a READ that asked for it, if the wire summed them

  std::span<const std::byte> answer() const {
    return long_result.span().empty() ? std::span<const std::byte>(result) : long_result.span();
  }

 private:
  friend class OperationTable;
  friend class Session;
  friend class Node;
  uint32_t index = 0, generation = 0;
  bool used = false;
  Session* session = nullptr;
  uint64_t started_ns = 0;

  // What is notified of the end: an event loop's queue, a sleeping thread, or native code.
  std::shared_ptr<EventQueue> queue;
  uint64_t token = 0;
  const EventFd* sleeper = nullptr;
  std::function<void(Operation&)> then;  // runs instead of a notification; the operation then ends

  // For one-sided operations; `opcode` send: a call.
  Opcode opcode = Opcode::send;
  uint64_t region = 0, offset = 0;  // region 0: `remote_addr` and `rkey` are set, and valid on this link only
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  std::byte* local = nullptr;
  uint32_t length = 0;
  uint32_t requests = 1;                 // work requests that complete with it
  Registration* registration = nullptr;  // null: through `bounce`, READs into `local` or `result`
  MessageBuffer* bounce = nullptr;
  uint64_t position = 0;
  bool is_summed = false;    // asks for crc32c
  bool once = false;         // not repeated on another link
  bool was_refused = false;  // the peer refused its access once
};

class OperationTable {
 public:
  Operation& begin(Session& session) {
    if (free_.empty()) {
      Operation& fresh = operations_.emplace_back();
      fresh.index = static_cast<uint32_t>(operations_.size() - 1);
      free_.push_back(&fresh);
    }
    Operation& operation = *free_.back();
    free_.pop_back();
    operation.used = true;
    operation.session = &session;
    return operation;
  }
  void end(Operation& operation) {
    operation.used = false;
    ++operation.generation;
    operation.finished.store(false, std::memory_order_relaxed);
    operation.outcome = Outcome::ok;
    operation.status = Status::success;
    operation.result.clear();
    operation.long_result = {};
    operation.session = nullptr;
    operation.queue = nullptr;
    operation.sleeper = nullptr;
    operation.then = nullptr;
    operation.opcode = Opcode::send;
    operation.region = 0;
    operation.requests = 1;
    operation.registration = nullptr;
    operation.bounce = nullptr;
    operation.crc32c.reset();
    operation.is_summed = false;
    operation.once = false;
    operation.was_refused = false;
    free_.push_back(&operation);
  }
  static uint64_t id(const Operation& operation) {
    return uint64_t{operation.generation} << 32 | operation.index;
  }
  // Null: it has ended, never existed, or belongs to another session.
  Operation* find(uint64_t id, const Session& session) {
    const auto index = static_cast<uint32_t>(id);
    if (index >= operations_.size()) return nullptr;
    Operation& operation = operations_[index];
    const bool same = operation.used && operation.generation == static_cast<uint32_t>(id >> 32);
    return same && operation.session == &session ? &operation : nullptr;
  }
  Operation& at(uint32_t index) { return operations_[index]; }
  template <typename Function>
  void each_of(const Session& session, Function function) {
    for (Operation& operation : operations_) {
      if (operation.used && operation.session == &session) function(operation);
    }
  }

 private:
  std::deque<Operation> operations_;  // addresses are stable
  std::vector<Operation*> free_;
};

}  // namespace verbena::transport
