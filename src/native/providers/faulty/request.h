// One posted send request: a copy that outlives the caller's, and its fault.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "providers/faulty/domain.h"
#include "providers/faulty/provider.h"

namespace verbena::faulty {

struct PostedRequest {
  // Copies the scatter/gather list, and the bytes of an inline request. `sequence` is its id on the inner
  // wire.
  PostedRequest(const SendRequest& request, bool is_signaled, uint64_t sequence);

  void apply(const FaultRule& fault, FaultyProtectionDomain& pd, uint64_t now);
  // The request for the inner wire: always signaled, so that its end is known. Valid while this object does
  // not move.
  SendRequest for_wire() const;
  void flip_landed_bit() const;

  SendRequest original;
  bool signaled;
  std::vector<Sge> local;
  std::vector<std::byte> inline_bytes;
  std::shared_ptr<Staged> staged;  // the payload, corrupted

  uint64_t not_before_ns = 0;
  std::optional<Status> injected;  // completes with this status instead of being executed
  bool breaks_link = false;
  bool corrupt_landing = false;
  uint32_t copies = 1;   // not yet posted to the inner wire
  uint32_t awaited = 0;  // outstanding inner completions
  Completion result;

 private:
  void copy_inline();
};

WcOpcode completion_opcode(Opcode opcode);

}  // namespace verbena::faulty
