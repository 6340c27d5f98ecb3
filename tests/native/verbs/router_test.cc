// The router and the batch runner over a queue that completes what the test wants.
#include "verbs/router.h"

#include <poll.h>

#include "check.h"
#include "stub_wire.h"
#include "util/clock.h"
#include "verbs/batch.h"

using namespace verbena;

namespace {

struct Fixture {
  std::shared_ptr<stub::Queue> queue = std::make_shared<stub::Queue>();
  CompletionRouter router{queue};

  void complete(uint64_t id, Status status = Status::success) { queue->push({.id = id, .status = status}); }
};

bool readable(int fd) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, 0) == 1;
}

bool never_stop() { return true; }

const BatchTarget kTarget{.local_addr = 0x1000,
                          .local_length = 1 << 20,
                          .remote_addr = 0x9000,
                          .remote_length = 1 << 20,
                          .lkey = 1,
                          .rkey = 2};

std::vector<BatchOperation> reads(size_t count) {
  std::vector<BatchOperation> operations;
  for (size_t i = 0; i < count; ++i) operations.push_back({8 * i, 16 * i, 8});
  return operations;
}

}  // namespace

TEST("tracked and raw completions are separated, each in order") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  f.complete(1);
  f.complete(id);
  f.complete(2);
  f.router.pump();
  CHECK(f.router.finished(id));
  Completion raw[4];
  CHECK(f.router.poll_raw(raw) == 2);
  CHECK(raw[0].id == 1 && raw[1].id == 2);
  Completion done;
  CHECK(f.router.take(id, done) && done.id == id);
  CHECK(f.router.tracked() == 0);
}

TEST("closing a queue pair removes nothing from a queue that another thread polls") {
  Fixture f;
  f.complete(1);
  f.complete(2);
  f.router.forget_qp(7);
  Completion theirs[4];
  CHECK(f.queue->poll(theirs) == 2);
}

TEST("polling raw straight from the queue leaves tracked completions to their owners") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  for (uint64_t i = 0; i < 5; ++i) f.complete(i);
  f.complete(id);
  f.complete(5);
  Completion raw[3];
  CHECK(f.router.poll_raw(raw) == 3 && raw[2].id == 2);
  CHECK(!f.router.finished(id));
  CHECK(f.router.poll_raw(raw) == 3 && raw[2].id == 5);
  CHECK(f.router.finished(id));
  CHECK(f.router.poll_raw(raw) == 0);
}

TEST("a freed id is refused afterwards, and its slot serves another") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  f.complete(id);
  CHECK(f.router.wait(id, kNever));
  Completion done;
  CHECK(f.router.take(id, done));
  const uint64_t next = f.router.begin(7);
  CHECK(next != id);
  f.complete(id);  // late: for nobody
  f.router.pump();
  CHECK(!f.router.finished(next) && !f.router.take(id, done));
}

TEST("the table grows past its first segment") {
  Fixture f;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 3000; ++i) ids.push_back(f.router.begin(7));
  for (const uint64_t id : ids) f.complete(id);
  f.router.pump();
  Completion done;
  for (const uint64_t id : ids) CHECK(f.router.take(id, done) && done.id == id);
  CHECK(f.router.tracked() == 0);
}

TEST("waiting ends at its deadline, spinning or asleep") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  CHECK(!f.router.wait(id, now_ns() + 100'000, 1000));
  const uint64_t begin = now_ns();
  CHECK(!f.router.wait(id, begin + 30'000'000, 0));
  CHECK(now_ns() - begin >= 30'000'000);
}

TEST("an abandoned operation frees itself, then releases the memory that it kept") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = kept;
  f.router.abandon(id, std::move(kept));
  f.router.pump();
  CHECK(f.router.tracked() == 1 && !f.router.has_dropped());
  f.complete(id);
  f.router.pump();
  CHECK(f.router.tracked() == 0 && f.router.has_dropped() && !alive.expired());
  f.router.take_dropped();
  CHECK(alive.expired() && !f.router.has_dropped());
}

TEST("abandoning what has finished frees it at once") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  f.complete(id);
  f.router.pump();
  f.router.abandon(id, nullptr);
  f.router.abandon(id, nullptr);  // stale: nothing happens
  CHECK(f.router.tracked() == 0);
}

TEST("a watched operation rings the queue's fd and comes out of one drain") {
  Fixture f;
  const uint64_t first = f.router.begin(7), second = f.router.begin(7);
  Completion done;
  CHECK(!f.router.watch(first, done) && !f.router.watch(second, done));
  f.complete(first);
  CHECK(readable(f.queue->fileno()));
  std::vector<Completion> finished;
  f.router.drain_watched(finished);
  CHECK(finished.size() == 1 && finished[0].id == first);
  CHECK(!readable(f.queue->fileno()) && f.queue->armed());  // one is left
  f.complete(second);
  f.router.drain_watched(finished);
  CHECK(finished.size() == 2 && !f.queue->armed());  // nobody waits: no more events
}

TEST("a watched operation that another thread's poll finishes rings the loop's bell") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  Completion done, raw[1];
  f.router.watch(id, done);
  f.queue->acknowledge();
  f.complete(id);
  f.queue->acknowledge();  // as on a wire that gives a completion to a poller without ringing
  CHECK(f.router.poll_raw(raw) == 0);
  CHECK(readable(f.router.wakeup_fileno()));
}

TEST("watching what has finished takes it instead") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  f.complete(id);
  Completion done;
  CHECK(f.router.watch(id, done) && done.id == id && f.router.tracked() == 0);
}

TEST("an event that another thread takes rings the loop's bell") {
  Fixture f;
  const uint64_t id = f.router.begin(7);
  Completion done;
  f.router.watch(id, done);
  f.complete(id);
  f.router.acknowledge();
  CHECK(!readable(f.queue->fileno()) && readable(f.router.wakeup_fileno()));
  std::vector<Completion> finished;
  f.router.drain_watched(finished);
  CHECK(finished.size() == 1 && !readable(f.router.wakeup_fileno()));
}

TEST("an expected event signals raw completions too") {
  Fixture f;
  f.router.expect_event();
  f.complete(3);
  CHECK(readable(f.queue->fileno()));
  f.router.acknowledge();
  CHECK(readable(f.router.wakeup_fileno()));
}

TEST("a closed queue pair's operations end as flushed, others stay") {
  Fixture f;
  const uint64_t mine = f.router.begin(7), watched = f.router.begin(7), other = f.router.begin(8);
  Completion done;
  f.router.watch(watched, done);
  f.router.forget_qp(7);
  CHECK(f.router.take(mine, done) && done.status == Status::wr_flush_err);
  CHECK(readable(f.router.wakeup_fileno()));
  std::vector<Completion> finished;
  f.router.drain_watched(finished);
  CHECK(finished.size() == 1 && finished[0].status == Status::wr_flush_err);
  CHECK(!f.router.finished(other));
}

TEST("a batch completes in order and signals once per chunk") {
  Fixture f;
  stub::Pair qp(*f.queue);
  const auto result = run_batch(qp, f.router, Opcode::read, kTarget, reads(1000), never_stop, nullptr);
  CHECK(result.end == BatchEnd::complete && result.completed == 1000 && qp.posted == 1000);
  CHECK(f.router.tracked() == 0);
}

TEST("a batch of none is complete") {
  Fixture f;
  stub::Pair qp(*f.queue);
  CHECK(run_batch(qp, f.router, Opcode::read, kTarget, {}, never_stop, nullptr).end == BatchEnd::complete);
}

TEST("a batch keeps within the send queue and the completion queue") {
  for (const uint32_t depth : {1u, 2u, 3u, 16u, 1000u}) {
    auto queue = std::make_shared<stub::Queue>(64);
    CompletionRouter router(queue);
    stub::Pair qp(*queue, depth);
    qp.hold = true;
    const auto keep_going = [&] {
      qp.let_go(5);
      return true;
    };
    const auto result = run_batch(qp, router, Opcode::write, kTarget, reads(30), keep_going, nullptr);
    CHECK(result.end == BatchEnd::complete && result.completed == 30);
    CHECK(qp.largest_backlog <= std::min(depth, 64u));
  }
}

TEST("an operation out of range is named and nothing is posted") {
  Fixture f;
  stub::Pair qp(*f.queue);
  for (const BatchOperation bad :
       {BatchOperation{(1 << 20) - 7, 0, 8}, {0, (1 << 20) - 7, 8}, {UINT64_MAX, 0, 8}, {0, 8, UINT64_MAX}}) {
    auto operations = reads(10);
    operations[4] = bad;
    const auto result = run_batch(qp, f.router, Opcode::read, kTarget, operations, never_stop, nullptr);
    CHECK(result.end == BatchEnd::out_of_range && result.completed == 4);
  }
  CHECK(qp.posted == 0);
}

TEST("a failing operation is named, wherever it lies in its chunk, and all the rest is drained") {
  for (const size_t at : {0u, 1u, 62u, 63u, 64u, 130u, 299u}) {
    Fixture f;
    stub::Pair qp(*f.queue);
    qp.fail_at = at;
    const auto result = run_batch(qp, f.router, Opcode::read, kTarget, reads(300), never_stop, nullptr);
    CHECK(result.end == BatchEnd::failed && result.completed == at &&
          result.status == Status::rem_access_err);
    CHECK(qp.ended == qp.posted && f.router.tracked() == 0);
  }
}

TEST("a refused operation is named and those before it are drained") {
  Fixture f;
  stub::Pair qp(*f.queue);
  qp.refuse_at = 70;
  const auto result = run_batch(
      qp, f.router, Opcode::read, kTarget, reads(300),
      [&] {
        return false;  // would be asked only if something were waited for in vain
      },
      nullptr);
  CHECK(result.end == BatchEnd::refused && result.completed == 64 && qp.posted == 70);
}

TEST("an interrupted batch keeps its memory until what was posted has ended") {
  Fixture f;
  stub::Pair qp(*f.queue);
  qp.hold = true;
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = kept;
  const auto result =
      run_batch(qp, f.router, Opcode::read, kTarget, reads(100), [] { return false; }, std::move(kept));
  CHECK(result.end == BatchEnd::interrupted && !alive.expired());
  qp.let_go(100);
  f.router.pump();
  f.router.take_dropped();
  CHECK(alive.expired() && f.router.tracked() == 0);
}

TEST("a batch longer than its sequence numbers counts on") {
  Fixture f;
  stub::Pair qp(*f.queue);
  const std::vector<BatchOperation> operations((1 << 23) + 1000, BatchOperation{0, 0, 0});
  qp.fail_at = operations.size() - 3;
  const auto result = run_batch(qp, f.router, Opcode::read, kTarget, operations, never_stop, nullptr);
  CHECK(result.end == BatchEnd::failed && result.completed == operations.size() - 3);
}

RUN_TESTS()
