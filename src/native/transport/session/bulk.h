// Large transfers between a program's memory and a peer's region: in fragments, pipelined, each checked by
// its CRC32C at the other end, and resumed at the acknowledged offset when the link changes. They run on the
// caller's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "transport/session/writer.h"

namespace verbena::transport {

struct BulkTarget {
  uint64_t region = 0, offset = 0;
  std::byte* data = nullptr;  // get: written; put: read only
  uint64_t length = 0;
};

struct BulkOptions {
  uint32_t fragment_bytes = 256u << 10;
  uint32_t depth = 16;  // fragments under way
};

// `memory` covers the target's, and is registered as needed: it is the caller's, who may keep it if all went
// well. Otherwise it is closed. `acknowledged` grows as the peer confirms; `keep_going` is asked now and
// then, and false ends the transfer. When they return, no wire touches the memory any more.
BulkResult put(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going);
BulkResult get(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going);

}  // namespace verbena::transport
