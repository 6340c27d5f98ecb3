// Writer: the base class of transfers that WRITE from local memory into regions of a peer, on the session's
// current link. After release() no wire accesses the memory, so its owner may use it again.
// May depend on transport/, verbs/ and util/ only.
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
  bool timed_out = false;
  std::string detail;
};

class Writer {
 public:
  Writer(Node& node, Session& session, Registration& memory, const std::function<bool()>& keep_going)
      : node_(node), session_(session), memory_(memory), keep_going_(keep_going) {}

 protected:
  static constexpr uint64_t kCheckEveryNs = 50'000'000;

  // Calls keep_going from time to time. False: the transfer was interrupted.
  bool may_go_on();
  // Call it with the node's lock. Posts a WRITE; `copied`, unless null, is set to the CRC32C of the data if
  // the wire computed it while copying. False: not possible now, or it has failed.
  bool write(uint64_t region, uint64_t offset, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied) {
    return write(region, offset, memory_, data, length, copied);
  }
  // As above, from memory other than that of the constructor.
  bool write(uint64_t region, uint64_t offset, Registration& memory, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied);
  // Call it with the node's lock. Ends an operation of this writer, whatever its state.
  void drop(Operation*& operation);
  // Waits for posted operations; if the transfer was given up, it soon ends the link instead. `finished`:
  // whether all WRITEs have been acknowledged; if not, closes the registration of the memory.
  void release(bool finished);
  // Sets the result, unless there was a failure before.
  void fail(Outcome outcome, Status status, std::string detail);

  Node& node_;
  Session& session_;
  Registration& memory_;
  uint64_t streamed_on_ = 0;  // the link with unconfirmed WRITEs of this transfer, or 0
  BulkResult result_;

 private:
  const std::function<bool()>& keep_going_;
  uint64_t checked_ns_ = 0;
};

}  // namespace verbena::transport
