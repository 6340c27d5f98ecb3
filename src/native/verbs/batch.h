// Many one-sided operations on one pair of regions, pipelined to the depth of the send queue.
// Depends on the router and the contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "verbs/router.h"

namespace verbena {

// One operation: offsets from the starts of the two regions. The layout is Python's (n, 3) array of uint64.
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
  size_t completed =
      0;  // operations that succeeded, from the first on; unless complete, also the index that did not
  Status status = Status::success;         // failed: of that operation
  PostError post_error = PostError::none;  // refused
};

// Runs all operations (READ or WRITE) in order of posting and returns when none is under way any more.
// Nothing is posted if any is out of range. While it sleeps it asks `keep_going` now and then; false ends it,
// and then `keep` is held until what was posted has ended.
BatchResult run_batch(QueuePair& qp, CompletionRouter& router, Opcode opcode, const BatchTarget& target,
                      std::span<const BatchOperation> operations, const std::function<bool()>& keep_going,
                      std::shared_ptr<void> keep);

}  // namespace verbena
