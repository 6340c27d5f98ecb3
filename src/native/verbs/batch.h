// run_batch(): many one-sided operations between one local and one remote region, pipelined to the depth of
// the send queue. Depends on the router, the provider contract and util/ only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "verbs/router.h"

namespace verbena {

// One operation, with offsets from the starts of the two regions. A row of Python's (n, 3) array of uint64
// has this layout.
struct BatchOperation {
  uint64_t local_offset, remote_offset, length_bytes;
};
static_assert(sizeof(BatchOperation) == 24);

struct BatchTarget {
  uint64_t local_addr, local_length;
  uint64_t remote_addr, remote_length;
  uint32_t lkey, rkey;
};

enum class BatchEnd : uint8_t { complete, out_of_range, refused, failed, interrupted };

struct BatchResult {
  BatchEnd end = BatchEnd::complete;
  // Number of operations that succeeded, counted from the first. Unless `end` is complete, this is also the
  // index of the operation that did not succeed.
  size_t completed = 0;
  Status status = Status::success;         // if failed: the status of that operation
  PostError post_error = PostError::none;  // if refused: the reason
};

// Posts all operations (READ or WRITE) in order and returns when none is in flight. If one is out of range,
// nothing is posted. While waiting it calls `keep_going` at intervals; if that returns false, run_batch()
// returns `interrupted`, and the router holds `keep` until the posted operations have completed.
BatchResult run_batch(QueuePair& qp, CompletionRouter& router, Opcode opcode, const BatchTarget& target,
                      std::span<const BatchOperation> operations, const std::function<bool()>& keep_going,
                      std::shared_ptr<void> keep);

}  // namespace verbena
