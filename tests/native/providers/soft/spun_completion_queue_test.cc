// Who spins on a completion queue, and how often the progress thread looks whether they still do.
#include "providers/soft/spun_completion_queue.h"

#include "check.h"

using namespace verbena;

namespace {

constexpr uint32_t kSpinnerPolls = 4;

class Queue final : public soft::SpunCompletionQueue {
 public:
  Queue() : SpunCompletionQueue(16, kSpinnerPolls) {}
  void look(uint32_t times) {
    Completion completion;
    for (uint32_t i = 0; i < times; ++i) poll({&completion, 1});
  }
  int came = 0, left = 0;
  bool allowed = true;

 private:
  void spinning_changed(bool is_polled) override { ++(is_polled ? came : left); }
  bool may_be_spun() const override { return allowed; }
};

void who_polls_often_is_a_spinner() {
  Queue queue;
  queue.look(kSpinnerPolls - 1);
  CHECK(!queue.is_polled());
  queue.look(1);
  CHECK(queue.is_polled() && queue.came == 1);
  queue.arm(false);
  CHECK(!queue.is_polled() && queue.left == 1);
}

void who_arms_in_between_is_none_however_often_it_polls() {
  Queue queue;
  for (uint32_t i = 0; i < 10 * kSpinnerPolls; ++i) {
    queue.arm(false);
    queue.look(kSpinnerPolls - 1);
  }
  CHECK(!queue.is_polled() && queue.came == 0);
}

void who_comes_back_after_sleeping_is_looked_at_soon() {
  Queue queue;
  queue.look(kSpinnerPolls);
  for (int i = 0; i < 10; ++i) queue.check_pollers(), queue.look(1);
  queue.arm(false);
  queue.look(kSpinnerPolls);
  CHECK(queue.is_polled() && queue.check_pollers() <= 4);
}

void who_stays_is_looked_at_ever_more_rarely() {
  Queue queue;
  queue.look(kSpinnerPolls);
  int last = 0;
  for (int i = 0; i < 10; ++i) {
    const int next = queue.check_pollers();
    CHECK(next >= last && next <= 16);
    last = next;
    queue.look(1);
  }
  CHECK(last == 16 && queue.is_polled());
}

void who_left_is_missed_and_the_next_is_looked_at_soon() {
  Queue queue;
  queue.look(kSpinnerPolls);
  for (int i = 0; i < 10; ++i) queue.check_pollers(), queue.look(1);
  queue.check_pollers();
  CHECK(queue.is_polled());
  queue.check_pollers();
  CHECK(!queue.is_polled());
  queue.look(kSpinnerPolls);
  CHECK(queue.is_polled() && queue.check_pollers() <= 4);
}

void a_queue_that_may_not_be_spun_on_is_not() {
  Queue queue;
  queue.allowed = false;
  queue.look(10 * kSpinnerPolls);
  CHECK(!queue.is_polled() && queue.came == 0);
  queue.allowed = true;
  queue.look(kSpinnerPolls);
  CHECK(queue.is_polled());
  queue.allowed = false;
  queue.look(1);
  queue.check_pollers();
  CHECK(!queue.is_polled());
}

}  // namespace

int main() {
  who_polls_often_is_a_spinner();
  who_arms_in_between_is_none_however_often_it_polls();
  who_comes_back_after_sleeping_is_looked_at_soon();
  who_stays_is_looked_at_ever_more_rarely();
  who_left_is_missed_and_the_next_is_looked_at_soon();
  a_queue_that_may_not_be_spun_on_is_not();
}
