// When a caller tries for a quick answer, and how many calls do not try after late ones.
#include "transport/node/promptness.h"

#include "check.h"

using verbena::transport::Promptness;

namespace {

// Calls that do not try until one does.
uint32_t left_out(Promptness& promptness) {
  uint32_t count = 0;
  while (!promptness.tries()) ++count;
  return count;
}

}  // namespace

TEST("everyone tries while answers are prompt") {
  Promptness promptness;
  for (int i = 0; i < 100; ++i) {
    CHECK(promptness.tries());
    promptness.prompt();
  }
}

TEST("one late answer says little: the next call tries") {
  Promptness promptness;
  CHECK(promptness.tries());
  promptness.late();
  CHECK(left_out(promptness) == 0);
}

TEST("the more are late in a row, the more calls do not try, up to a limit") {
  Promptness promptness;
  for (const uint32_t expected : {0u, 2u, 6u, 14u, 30u, 62u, 62u, 62u}) {
    promptness.late();
    CHECK(left_out(promptness) == expected);
  }
  CHECK(Promptness::kMostUntried == 63);
}

TEST("a prompt answer ends that: the next late one counts as the first") {
  Promptness promptness;
  for (int i = 0; i < 6; ++i) {
    promptness.late();
    left_out(promptness);
  }
  promptness.prompt();
  CHECK(promptness.tries());
  promptness.late();
  CHECK(left_out(promptness) == 0);
  promptness.late();
  CHECK(left_out(promptness) == 2);
}

RUN_TESTS()
