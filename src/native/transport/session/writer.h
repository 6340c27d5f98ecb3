// Writer: WRITEs from one memory into regions of a peer on the present link. After its release no wire
// accesses the memory, so the owner may use it again.
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
  // With the lock. Posts a WRITE; `copied`, unless null, is set to its CRC32C if the wire computed it while
  // copying. False: not possible now, or it has failed.
  bool write(uint64_t region, uint64_t offset, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied) {
    return write(region, offset, memory_, data, length, copied);
  }
  // From other memory.
  bool write(uint64_t region, uint64_t offset, Registration& memory, std::byte* data, uint32_t length,
             std::optional<uint32_t>* copied);
  // With the lock. Ends an operation of this writer, in whatever state it is.
  void drop(Operation*& operation);
  // Waits for posted operations; `finished`: all WRITEs have been acknowledged. Otherwise closes the memory's
  // registration.
  void release(bool finished);
  // Keeps the first failure.
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
