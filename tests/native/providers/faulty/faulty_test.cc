// Injected faults on the fake wire: each kind, the order of completions, and wake-ups of sleeping threads.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "providers/fake/provider.h"
#include "providers/faulty/provider.h"
#include "util/error.h"

namespace {

using namespace verbena;
using faulty::FaultKind;
using faulty::FaultPlan;

constexpr size_t kBytes = 256;

struct End {
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq, recv_cq;
  std::shared_ptr<QueuePair> qp;
  std::shared_ptr<Connection> connection;
  std::vector<uint64_t> words = std::vector<uint64_t>(kBytes / sizeof(uint64_t));
  std::shared_ptr<MemoryRegion> region;

  explicit End(Provider& provider, uint32_t cq_depth = 64) : context(provider.open("")) {
    pd = context->alloc_pd();
    cq = context->create_cq(cq_depth);
    recv_cq = context->create_cq(64);
    qp = pd->create_qp({.send_cq = cq, .recv_cq = recv_cq, .limits = {.max_send = 8}});
    region = pd->register_memory(bytes(), kBytes, access::all, false);
  }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
  Sge sge(size_t offset, uint32_t length) {
    return {reinterpret_cast<uint64_t>(bytes()) + offset, length, region->lkey()};
  }
  void fill(const char* text, size_t offset = 0) { std::memcpy(bytes() + offset, text, std::strlen(text)); }
  bool holds(const char* text, size_t offset = 0) {
    return std::memcmp(bytes() + offset, text, std::strlen(text)) == 0;
  }
  void expect(size_t count, uint32_t length = 8) {
    for (size_t i = 0; i < count; ++i) {
      const Sge local = sge(i * length, length);
      const RecvRequest request{.id = i, .local = {&local, 1}};
      CHECK(qp->post_recv({&request, 1}).accepted == 1);
    }
  }
};

// Two ends on a faulty wire with one plan, connected by the connection manager.
struct Pair {
  std::shared_ptr<FaultPlan> plan = std::make_shared<FaultPlan>();
  std::shared_ptr<Provider> provider = faulty::make_provider(fake::make_provider(), plan);
  End a, b;

  explicit Pair(uint32_t cq_depth = 64) : a(*provider, cq_depth), b(*provider) {
    const auto listener = b.context->listen("", 1);
    a.connection = a.context->connect(a.qp, listener->address(), {});
    b.connection = listener->next()->accept(b.qp, {});
  }

  PostError post(Opcode opcode, uint64_t id, Sge local, uint32_t flags = send_flag::signaled) {
    const SendRequest request{.id = id,
                              .opcode = opcode,
                              .flags = flags,
                              .rkey = b.region->rkey(),
                              .remote_addr = reinterpret_cast<uint64_t>(b.bytes()),
                              .compare_add = 1,
                              .local = {&local, 1}};
    return a.qp->post_send({&request, 1}).error;
  }
  PostError write(uint64_t id, uint32_t flags = send_flag::signaled) {
    return post(Opcode::write, id, a.sge(0, 8), flags);
  }
};

std::vector<Completion> take_all(CompletionQueue& cq) {
  std::vector<Completion> all;
  Completion batch[3];  // smaller than the number of completions
  for (int idle = 0; idle < 50;) {
    const size_t count = cq.poll(batch);
    all.insert(all.end(), batch, batch + count);
    idle = count == 0 ? idle + 1 : 0;
  }
  return all;
}

using Outcome = std::vector<std::pair<uint64_t, Status>>;

Outcome outcome(CompletionQueue& cq) {
  Outcome all;
  for (const Completion& completion : take_all(cq)) all.emplace_back(completion.id, completion.status);
  return all;
}

bool is_readable(int fd, int timeout_ms = 0) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

bool is_refused(auto call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == code;
  }
  return false;
}

TEST("with an empty plan requests behave as on the wrapped provider") {
  Pair pair;
  pair.a.fill("plain");
  pair.b.expect(1);
  pair.write(1);
  pair.write(2, 0);
  pair.post(Opcode::send, 3, pair.a.sge(0, 8));
  pair.post(Opcode::read, 4, pair.a.sge(64, 5));
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::success}, {3, Status::success}, {4, Status::success}}));
  CHECK(take_all(*pair.b.recv_cq).at(0).byte_count == 8 && pair.b.holds("plain") &&
        pair.a.holds("plain", 64));
}

TEST("a dropped request fails after what came before it, and the rest is flushed") {
  Pair pair;
  const size_t rule = pair.plan->add({.kind = FaultKind::drop, .opcode = Opcode::write, .nth = 2});
  pair.a.fill("x");
  pair.post(Opcode::read, 1, pair.a.sge(64, 8));
  pair.write(2, 0);
  pair.a.fill("y");
  pair.write(3);
  pair.write(4, 0);
  pair.write(5);
  const Outcome expected = {
      {1, Status::success}, {3, Status::retry_exc_err}, {4, Status::wr_flush_err}, {5, Status::wr_flush_err}};
  CHECK(outcome(*pair.a.cq) == expected);
  CHECK(pair.a.qp->state() == QpState::err && pair.b.qp->state() == QpState::rts);
  CHECK(pair.b.holds("x") && pair.plan->hits(rule) == 1);
}

TEST("an injected failure waits for a request that is still in flight") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::fail, .opcode = Opcode::write, .status = Status::rem_op_err});
  pair.post(Opcode::send, 1, pair.a.sge(0, 8));  // no receive yet
  pair.write(2, 0);
  pair.post(Opcode::send, 3, pair.a.sge(0, 8), 0);
  CHECK(outcome(*pair.a.cq).empty() && pair.a.qp->state() == QpState::rts);
  pair.b.expect(2);
  Outcome seen;
  for (int i = 0; i < 100 && seen.size() < 3; ++i) {
    for (const auto& one : outcome(*pair.a.cq)) seen.push_back(one);
  }
  CHECK(seen == Outcome({{1, Status::success}, {2, Status::rem_op_err}, {3, Status::wr_flush_err}}));
  CHECK(take_all(*pair.b.recv_cq).size() == 1);
}

TEST("an injected failure behind a real one is flushed") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::drop, .opcode = Opcode::write});
  Sge unknown = pair.a.sge(0, 8);
  unknown.lkey ^= 1;
  pair.post(Opcode::read, 1, unknown);
  pair.write(2);
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::loc_prot_err}, {2, Status::wr_flush_err}}));
}

TEST("a delay holds a request and all behind it until its time") {
  Pair pair;
  std::atomic<uint64_t> now = 1000;
  pair.plan->set_clock([&now] { return now.load(); });
  pair.plan->add({.kind = FaultKind::delay, .nth = 2, .delay_ns = 5'000'000'000});
  pair.a.fill("before");
  pair.write(1);
  pair.a.fill("after!");
  pair.write(2);
  pair.write(3);
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::success}}) && pair.b.holds("before"));
  now = 5'000'000'999;
  CHECK(outcome(*pair.a.cq).empty());
  now = 5'000'001'000;
  CHECK(outcome(*pair.a.cq) == Outcome({{2, Status::success}, {3, Status::success}}) &&
        pair.b.holds("after!"));
}

TEST("polling the receive queue moves delayed requests on as well") {
  Pair pair;
  uint64_t now = 0;
  pair.plan->set_clock([&now] { return now; });
  pair.plan->add({.kind = FaultKind::delay, .delay_ns = 10});
  pair.a.fill("go");
  pair.write(1, 0);
  now = 10;
  CHECK(take_all(*pair.a.recv_cq).empty() && pair.b.holds("go"));
}

TEST("a sleeper is woken when a delay ends, and when the delayed request completes") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::delay, .delay_ns = 20'000'000});
  pair.a.cq->arm(false);
  pair.write(1);
  CHECK(!is_readable(pair.a.cq->fileno()));
  Outcome seen;
  while (seen.empty()) {
    CHECK(is_readable(pair.a.cq->fileno(), 5'000));
    pair.a.cq->acknowledge();
    pair.a.cq->arm(false);
    seen = outcome(*pair.a.cq);
  }
  CHECK(seen == Outcome({{1, Status::success}}));
  pair.a.cq->acknowledge();
  CHECK(!is_readable(pair.a.cq->fileno()));
}

TEST("a sleeper is woken by an injected completion of another thread's request") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::drop});
  pair.a.cq->arm(true);  // failures count as solicited
  CHECK(outcome(*pair.a.cq).empty());
  std::thread poster([&pair] { pair.write(7); });
  CHECK(is_readable(pair.a.cq->fileno(), 5'000));
  poster.join();
  pair.a.cq->acknowledge();
  CHECK(outcome(*pair.a.cq) == Outcome({{7, Status::retry_exc_err}}));
}

TEST("completions before arming do not signal, later ones signal once") {
  Pair pair;
  pair.write(1);
  pair.a.cq->arm(false);
  CHECK(!is_readable(pair.a.cq->fileno()) && take_all(*pair.a.cq).size() == 1);
  pair.write(2);
  CHECK(is_readable(pair.a.cq->fileno()));
  pair.a.cq->acknowledge();
  CHECK(take_all(*pair.a.cq).size() == 1 && !is_readable(pair.a.cq->fileno()));
}

TEST("delayed requests are flushed at once when the queue pair breaks, and vanish with RESET") {
  Pair pair;
  pair.plan->set_clock([] { return uint64_t{0}; });
  pair.plan->add({.kind = FaultKind::delay, .count = 100, .delay_ns = 1});
  pair.write(1);
  pair.write(2, 0);
  pair.a.qp->modify({.state = QpState::err});
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::wr_flush_err}, {2, Status::wr_flush_err}}));

  Pair reset;
  reset.plan->set_clock([] { return uint64_t{0}; });
  reset.plan->add({.kind = FaultKind::delay, .delay_ns = 1});
  reset.write(1);
  reset.a.qp->modify({.state = QpState::reset});
  CHECK(outcome(*reset.a.cq).empty() && reset.write(2) == PostError::bad_state);
}

TEST("delayed requests fill the queue and keep their inline bytes") {
  Pair pair;
  uint64_t now = 0;
  pair.plan->set_clock([&now] { return now; });
  pair.plan->add({.kind = FaultKind::delay, .delay_ns = 1});
  pair.a.fill("inline");
  CHECK(pair.post(Opcode::write, 0, pair.a.sge(0, 6), send_flag::signaled | send_flag::inline_data) ==
        PostError::none);
  pair.a.fill("......");
  for (uint64_t id = 1; id < 8; ++id)
    CHECK(pair.post(Opcode::read, id, pair.a.sge(64, 6)) == PostError::none);
  CHECK(pair.write(8) == PostError::full);
  const Sge five[5] = {};
  const SendRequest wide{.local = five};
  CHECK(pair.a.qp->post_send({&wide, 1}).error == PostError::full);
  now = 1;
  CHECK(outcome(*pair.a.cq).size() == 8 && pair.b.holds("inline") && pair.a.holds("inline", 64));
  CHECK(pair.a.qp->post_send({&wide, 1}).error == PostError::too_many_sges);
}

TEST("a duplicated request is executed twice and completes once") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::duplicate, .count = 2});
  pair.post(Opcode::fetch_add, 1, pair.a.sge(64, 8));
  pair.b.expect(3);
  pair.post(Opcode::send, 2, pair.a.sge(0, 8), 0);
  pair.write(3);
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::success}, {3, Status::success}}));
  CHECK(pair.a.words[8] == 1 && take_all(*pair.b.recv_cq).size() == 2);
}

TEST("duplicates wait for room on the wire, in order") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::duplicate, .count = 100});
  for (uint64_t id = 0; id < 8; ++id) CHECK(pair.post(Opcode::send, id, pair.a.sge(0, 8)) == PostError::none);
  CHECK(outcome(*pair.a.cq).empty());
  pair.b.expect(16);
  Outcome seen;
  for (int i = 0; i < 1'000 && seen.size() < 8; ++i) {
    for (const auto& one : outcome(*pair.a.cq)) seen.push_back(one);
  }
  for (uint64_t id = 0; id < 8; ++id) CHECK(seen.at(id) == std::pair(id, Status::success));
  CHECK(take_all(*pair.b.recv_cq).size() == 16);
}

TEST("a corrupted payload differs in one bit, and the sender's memory does not") {
  for (const uint32_t flags : {send_flag::signaled, send_flag::signaled | send_flag::inline_data}) {
    for (const Opcode opcode : {Opcode::write, Opcode::send}) {
      Pair pair;
      pair.plan->add({.kind = FaultKind::corrupt});
      pair.a.fill("12345678");
      pair.b.expect(1);
      pair.post(opcode, 1, pair.a.sge(0, 8), flags);
      CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::success}}));
      CHECK(pair.a.holds("12345678") && pair.b.holds("12344678"));
      pair.b.expect(1);
      pair.post(opcode, 2, pair.a.sge(0, 8), flags);
      CHECK(outcome(*pair.a.cq) == Outcome({{2, Status::success}}) && pair.b.holds("12345678"));
    }
  }
}

TEST("a corrupted read brings one wrong bit, and the peer's memory is right") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::corrupt, .opcode = Opcode::read});
  pair.b.fill("12345678");
  pair.post(Opcode::read, 1, pair.a.sge(0, 8), 0);
  pair.post(Opcode::read, 2, pair.a.sge(8, 8));
  CHECK(outcome(*pair.a.cq) == Outcome({{2, Status::success}}));
  CHECK(pair.a.holds("12344678") && pair.a.holds("12345678", 8) && pair.b.holds("12345678"));
}

TEST("a payload that cannot be corrupted is left to the wire") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::corrupt, .count = 3});
  CHECK(pair.post(Opcode::write, 1, pair.a.sge(0, 0)) == PostError::none);
  CHECK(outcome(*pair.a.cq) == Outcome({{1, Status::success}}));
  Sge gone = pair.a.sge(0, 8);
  pair.a.region->close();
  pair.post(Opcode::write, 2, gone);
  CHECK(outcome(*pair.a.cq) == Outcome({{2, Status::loc_prot_err}}));
}

TEST("a broken link is seen by both ends and by their connection") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::break_link, .opcode = Opcode::send, .nth = 2});
  pair.b.expect(2);
  for (uint64_t id = 1; id < 4; ++id) pair.post(Opcode::send, id, pair.a.sge(0, 8));
  CHECK(outcome(*pair.a.cq) ==
        Outcome({{1, Status::success}, {2, Status::wr_flush_err}, {3, Status::wr_flush_err}}));
  CHECK(outcome(*pair.b.recv_cq) == Outcome({{0, Status::success}, {1, Status::wr_flush_err}}));
  CHECK(pair.b.connection->state() == ConnectionState::disconnected && pair.b.qp->state() == QpState::err);
}

TEST("a broken link is seen at both ends without a connection, too") {
  Pair pair;
  pair.a.connection.reset();
  pair.b.connection.reset();
  pair.plan->add({.kind = FaultKind::break_link});
  pair.write(1);
  CHECK(pair.a.qp->state() == QpState::err && pair.b.qp->state() == QpState::err);
}

TEST("a plan counts matching requests, and the first of two rules applies") {
  FaultPlan plan;
  const size_t any = plan.add({.kind = FaultKind::drop, .nth = 3, .count = 2});
  const size_t reads = plan.add({.kind = FaultKind::delay, .opcode = Opcode::read, .nth = 2, .count = 9});
  CHECK(!plan.match(Opcode::write) && !plan.match(Opcode::read));
  CHECK(plan.match(Opcode::read)->kind == FaultKind::drop &&
        plan.match(Opcode::write)->kind == FaultKind::drop);
  CHECK(plan.match(Opcode::read)->kind == FaultKind::delay && !plan.match(Opcode::write));
  CHECK(plan.hits(any) == 2 && plan.hits(reads) == 1 && plan.rules().size() == 2);
  plan.clear();
  CHECK(!plan.match(Opcode::read));
  CHECK(is_refused([&] { plan.hits(0); }, "out_of_range"));
  CHECK(is_refused([&] { plan.add({.nth = 0}); }, "invalid_argument"));
  CHECK(is_refused([&] { plan.add({.kind = FaultKind::fail, .status = Status::success}); },
                   "invalid_argument"));
}

TEST("a completion queue that is too small reports it and breaks its queue pairs") {
  Pair pair(2);
  for (uint64_t id = 0; id < 3; ++id) pair.write(id);
  CHECK(pair.a.cq->overrun() && pair.a.qp->state() == QpState::err && pair.a.cq->capacity() == 2);
}

TEST("queue pairs of another provider are refused, and closing twice is harmless") {
  Pair pair;
  const auto stranger = fake::make_provider();
  End other(*stranger);
  CHECK(is_refused([&] { pair.a.context->connect(other.qp, "nobody", {}); }, "invalid_argument"));
  CHECK(is_refused([&] { pair.a.pd->create_qp({.send_cq = other.cq, .recv_cq = other.cq}); },
                   "invalid_argument"));
  pair.plan->set_clock([] { return uint64_t{0}; });
  pair.plan->add({.kind = FaultKind::corrupt});
  pair.plan->add({.kind = FaultKind::delay, .delay_ns = 1});
  pair.post(Opcode::send, 1, pair.a.sge(0, 8));  // its private copy is still in use
  pair.a.qp->close();
  pair.a.qp->close();
  CHECK(outcome(*pair.a.cq).empty());
}

TEST("threads may post and poll concurrently: every request completes once") {
  Pair pair;
  pair.plan->add({.kind = FaultKind::duplicate, .nth = 5, .count = 1'000});
  pair.plan->add({.kind = FaultKind::delay, .nth = 1, .count = 4, .delay_ns = 100'000});
  constexpr uint64_t kRequests = 500;
  std::atomic<uint64_t> posted = 0, completed = 0;
  const auto post = [&] {
    while (posted.fetch_add(1) < kRequests) {
      while (pair.write(1) == PostError::full) std::this_thread::yield();
    }
  };
  const auto poll = [&] {
    Completion batch[4];
    while (completed < kRequests) completed += pair.a.cq->poll(batch);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back(post);
    threads.emplace_back(poll);
  }
  for (auto& thread : threads) thread.join();
  CHECK(completed == kRequests && take_all(*pair.a.cq).empty());
}

}  // namespace

RUN_TESTS()
