// A provider that wraps another and makes chosen requests fail, for tests. Gives FaultPlan (which requests,
// and how) and make_provider(). Any provider of the contract can be inside. Depends on soft/, verbs/ and
// util/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "verbs/provider.h"

namespace verbena::faulty {

enum class FaultKind : uint8_t {
  drop,       // never arrives: completes RETRY_EXC_ERR, and the QP is in ERR
  delay,      // the request and those behind it on its QP wait for delay_ns; polling either CQ of the QP
              // continues them
  duplicate,  // executed twice, completes once
  corrupt,  // one bit of what it sends (SEND, WRITE) or returns (READ, atomics) is wrong, and no end reports
            // it
  fail,     // completes with `status` without being executed, and the QP is in ERR
  break_link,  // is flushed; both QPs are in ERR, and a managed connection is disconnected
};
// Each fault happens when it is the request's turn: what was posted before it on its QP completes first.

struct FaultRule {
  FaultKind kind = FaultKind::drop;
  std::optional<Opcode> opcode;  // empty: any
  uint64_t nth = 1;              // the first request it hits, counting those of its opcode on all QPs, from 1
  uint64_t count = 1;            // how many in a row it hits
  Status status = Status::general_err;  // of fail
  uint64_t delay_ns = 0;                // of delay
  uint64_t hits = 0;                    // how many it has hit so far
};

// Which send requests go wrong; shared by all queue pairs of a provider. Thread-safe.
class FaultPlan {
 public:
  using Clock = std::function<uint64_t()>;  // nanoseconds

  // Returns the rule's index. Throws invalid_argument for a rule that could never match.
  size_t add(FaultRule rule);
  void clear();  // indices begin at 0 again
  uint64_t hits(size_t rule) const;
  std::vector<FaultRule> rules() const;

  // Counts one posted request. Returns the rule that applies; of several, the one that was added first.
  std::optional<FaultRule> match(Opcode opcode);

  void set_clock(Clock clock);  // replaces the monotonic clock for delays
  uint64_t now() const;

 private:
  struct Row {
    FaultRule rule;
    uint64_t seen = 0;
  };

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
  Clock clock_;
};

std::shared_ptr<Provider> make_provider(std::shared_ptr<Provider> inner, std::shared_ptr<FaultPlan> plan);

}  // namespace verbena::faulty
