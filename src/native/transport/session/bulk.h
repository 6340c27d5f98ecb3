// Large transfers between local memory and a region of a peer: in pipelined fragments, each verified by its
// CRC32C, and resumed at the acknowledged offset when the link changes. They run on the caller's thread.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "transport/session/writer.h"
#include "util/clock.h"

namespace verbena::transport {

struct BulkTarget {
  uint64_t region = 0, offset = 0;
  std::byte* data = nullptr;  // get: written; put: read only
  uint64_t length = 0;
};

struct BulkOptions {
  uint32_t fragment_bytes = 256u << 10;
  uint32_t depth = 16;  // fragments in flight
  uint64_t deadline_ns = kNever;
};

// `memory` covers the target's and is registered as needed. After success the caller may keep it; otherwise
// it is closed. `acknowledged` counts confirmed bytes. `keep_going` is called from time to time; false ends
// the transfer, and so does the deadline. When they return, no wire accesses the memory.
BulkResult put(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going);
BulkResult get(Node& node, Session& session, const BulkTarget& target, const BulkOptions& options,
               Registration& memory, std::atomic<uint64_t>& acknowledged,
               const std::function<bool()>& keep_going);

}  // namespace verbena::transport
