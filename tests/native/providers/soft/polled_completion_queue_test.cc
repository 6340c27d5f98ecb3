// When a completion queue counts as busy-polled, and how often the progress thread checks that it still is.
#include "providers/soft/polled_completion_queue.h"

#include "check.h"

using namespace verbena;

namespace {

constexpr uint32_t kBusyPolls = 4;

class Queue final : public soft::PolledCompletionQueue {
 public:
  Queue() : PolledCompletionQueue(std::make_shared<soft::ProgressThread>(), 16, kBusyPolls) {}
  ~Queue() override { stop_checks(); }
  void poll_times(uint32_t times) {
    Completion completion;
    for (uint32_t i = 0; i < times; ++i) poll({&completion, 1});
  }
  int begun = 0, ended = 0;
  bool allowed = true;

 private:
  void polling_changed(bool is_polled) override { ++(is_polled ? begun : ended); }
  bool may_be_polled() const override { return allowed; }
};

void many_polls_without_arm_are_busy_polling() {
  Queue queue;
  queue.poll_times(kBusyPolls - 1);
  CHECK(!queue.is_polled());
  queue.poll_times(1);
  CHECK(queue.is_polled() && queue.begun == 1);
  queue.arm(false);
  CHECK(!queue.is_polled() && queue.ended == 1);
}

void polls_with_arms_between_them_are_not_busy_polling() {
  Queue queue;
  for (uint32_t i = 0; i < 10 * kBusyPolls; ++i) {
    queue.arm(false);
    queue.poll_times(kBusyPolls - 1);
  }
  CHECK(!queue.is_polled() && queue.begun == 0);
}

void a_poller_that_returns_after_arm_is_checked_soon() {
  Queue queue;
  queue.poll_times(kBusyPolls);
  for (int i = 0; i < 10; ++i) queue.check_pollers(), queue.poll_times(1);
  queue.arm(false);
  queue.poll_times(kBusyPolls);
  CHECK(queue.is_polled() && queue.check_pollers() <= 4);
}

void a_poller_that_stays_is_checked_less_and_less_often() {
  Queue queue;
  queue.poll_times(kBusyPolls);
  int last = 0;
  for (int i = 0; i < 10; ++i) {
    const int next = queue.check_pollers();
    CHECK(next >= last && next <= 16);
    last = next;
    queue.poll_times(1);
  }
  CHECK(last == 16 && queue.is_polled());
}

void a_poller_that_stops_is_noticed_and_the_next_is_checked_soon() {
  Queue queue;
  queue.poll_times(kBusyPolls);
  for (int i = 0; i < 10; ++i) queue.check_pollers(), queue.poll_times(1);
  queue.check_pollers();
  CHECK(queue.is_polled());
  queue.check_pollers();
  CHECK(!queue.is_polled());
  queue.poll_times(kBusyPolls);
  CHECK(queue.is_polled() && queue.check_pollers() <= 4);
}

void a_queue_that_may_not_be_polled_stays_unpolled() {
  Queue queue;
  queue.allowed = false;
  queue.poll_times(10 * kBusyPolls);
  CHECK(!queue.is_polled() && queue.begun == 0);
  queue.allowed = true;
  queue.poll_times(kBusyPolls);
  CHECK(queue.is_polled());
  queue.allowed = false;
  queue.poll_times(1);
  queue.check_pollers();
  CHECK(!queue.is_polled());
}

}  // namespace

int main() {
  many_polls_without_arm_are_busy_polling();
  polls_with_arms_between_them_are_not_busy_polling();
  a_poller_that_returns_after_arm_is_checked_soon();
  a_poller_that_stays_is_checked_less_and_less_often();
  a_poller_that_stops_is_noticed_and_the_next_is_checked_soon();
  a_queue_that_may_not_be_polled_stays_unpolled();
}
