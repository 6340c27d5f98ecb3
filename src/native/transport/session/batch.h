// Many READs or WRITEs between one range of local memory and regions of a peer: in waves of one lock and one
// signalled request each, several in flight, in order. What a lost link interrupts is repeated on the next
// one. They run on the caller's thread. May depend on transport/, verbs/ and util/ only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "transport/session/writer.h"
#include "util/clock.h"

namespace verbena::transport {

// Sets region, offset, local and length of the pieces from number `first` on.
using FillPieces = std::function<void(uint64_t first, std::span<GatherPiece> pieces)>;

struct BatchRequest {
  Opcode opcode = Opcode::read;
  uint64_t pieces = 0;
  FillPieces fill;
  uint64_t deadline_ns = kNever;
};

// `memory` covers the pieces' local memory and is registered as needed. `done` counts pieces that are
// complete. `keep_going` is called from time to time, without the lock; false ends the batch, and so does the
// deadline. When it returns, no wire accesses the memory.
BulkResult run_batch(Node& node, Session& session, const BatchRequest& request, Registration& memory,
                     uint64_t& done, const std::function<bool()>& keep_going);

}  // namespace verbena::transport
