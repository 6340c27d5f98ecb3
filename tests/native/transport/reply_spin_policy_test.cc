// Which calls spin for their reply, and how many skip the spin after late replies.
#include "transport/node/reply_spin_policy.h"

#include "check.h"

using verbena::transport::ReplySpinPolicy;

namespace {

// Calls that skip the spin until one does not.
uint32_t skipped(ReplySpinPolicy& policy) {
  uint32_t count = 0;
  while (!policy.should_spin()) ++count;
  return count;
}

}  // namespace

TEST("every call spins while replies come in time") {
  ReplySpinPolicy policy;
  for (int i = 0; i < 100; ++i) {
    CHECK(policy.should_spin());
    policy.record_reply();
  }
}

TEST("after one late reply the next call still spins") {
  ReplySpinPolicy policy;
  CHECK(policy.should_spin());
  policy.record_late();
  CHECK(skipped(policy) == 0);
}

TEST("each late reply in a row makes more calls skip the spin, up to a limit") {
  ReplySpinPolicy policy;
  for (const uint32_t expected : {0u, 2u, 6u, 14u, 30u, 62u, 62u, 62u}) {
    policy.record_late();
    CHECK(skipped(policy) == expected);
  }
  CHECK(ReplySpinPolicy::kMaxSkipped == 63);
}

TEST("a reply in time resets the policy: the next late reply counts as the first") {
  ReplySpinPolicy policy;
  for (int i = 0; i < 6; ++i) {
    policy.record_late();
    skipped(policy);
  }
  policy.record_reply();
  CHECK(policy.should_spin());
  policy.record_late();
  CHECK(skipped(policy) == 0);
  policy.record_late();
  CHECK(skipped(policy) == 2);
}

RUN_TESTS()
