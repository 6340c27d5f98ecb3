// WRITEs of one memory into a peer's regions, on whatever link there is, and the way out: nobody may touch
// the memory when its owner has it back.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "transport/node/node.h"

namespace verbena::transport {

struct BulkResult {
  Outcome outcome = Outcome::ok;
  Status status = Status::success;
  bool interrupted = false;
  std::string detail;
};

class Writer {
 public:
  Writer(Node& node, Session& session, Registration& memory, const std::function<bool()>& keep_going)
      : node_(node), session_(session), memory_(memory), keep_going_(keep_going) {}

 protected:
  static constexpr uint64_t kAskEveryNs = 50'000'000;

  // Asks the owner now and then; false: it is interrupted.
  bool may_go_on();
  // With the lock. Posts a part; `copied`, if it is wanted, is its CRC32C, if the wire took the bytes at once
  // and summed them. False: not now, or it has failed.
  bool write(uint64_t region, uint64_t offset, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied) {
    return write(region, offset, memory_, data, length, copied);
  }
  // The same from other memory.
  bool write(uint64_t region, uint64_t offset, Registration& memory, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied);
  // With the lock. Takes a call of ours back, whatever became of it.
  void drop(Call*& call);
  // Waits for what is on the wire; `finished`: all that was written has been acknowledged. Otherwise the
  // memory's registration is closed.
  void release(bool finished);
  // The first failure counts.
  void fail(Outcome outcome, Status status, std::string detail);

  Node& node_;
  Session& session_;
  Registration& memory_;
  uint64_t streamed_on_ = 0;  // the link that has WRITEs of ours, if any
  BulkResult result_;

 private:
  const std::function<bool()>& keep_going_;
  uint64_t asked_ns_ = 0;
};

}  // namespace verbena::transport
