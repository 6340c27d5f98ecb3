// Ends of a shm connection that are reset, forked, killed or closed at critical moments.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "check.h"
#include "providers/shm/provider.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"
#include "util/error.h"

using namespace verbena;

namespace {

constexpr uint64_t kTimeoutNs = 10'000'000'000;

template <typename Condition>
bool eventually(Condition condition) {
  for (const uint64_t began = now_ns(); !condition();) {
    if (now_ns() - began > kTimeoutNs) return false;
    usleep(200);
  }
  return true;
}

struct End {
  std::shared_ptr<Context> context = shm::make_provider()->open("");
  std::shared_ptr<ProtectionDomain> pd = context->alloc_pd();
  std::shared_ptr<CompletionQueue> cq = context->create_cq(64);
  std::shared_ptr<QueuePair> qp = pd->create_qp({.send_cq = cq, .recv_cq = cq});
  std::shared_ptr<Memory> memory = context->allocate(4096, {.peer_access = access::all});
  std::shared_ptr<MemoryRegion> region =
      pd->register_memory(memory->data(), memory->size(), access::all, false);
  Sge piece{reinterpret_cast<uint64_t>(memory->data()), 64, region->lkey()};

  ~End() { qp->close(); }

  void connect_to(const End& peer) {
    soft::move_to_init(*qp);
    soft::move_to_rts(*qp,
                      {.dest_gid = peer.context->query().ports[0].gids[0], .dest_qp_num = peer.qp->number()});
  }

  void post_receive() {
    const RecvRequest receive{1, {&piece, 1}};
    CHECK(qp->post_recv({&receive, 1}).accepted == 1);
  }

  void send() {
    const SendRequest request{.id = 2, .local = {&piece, 1}};
    CHECK(qp->post_send({&request, 1}).accepted == 1);
  }

  Completion wait() {
    Completion completion;
    CHECK(eventually([&] { return cq->poll({&completion, 1}) == 1; }));
    return completion;
  }
};

void exchange(End& from, End& to) {
  to.post_receive();
  from.send();
  CHECK(to.wait().status == Status::success);
  CHECK(from.wait().status == Status::success);
}

std::string service() { return "lifecycle-" + std::to_string(getpid()); }

// A child process, in a process group of its own, that calls `body` and then waits to be killed.
template <typename Body>
pid_t child(Body body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  body();
  for (;;) pause();
}

void remove_link(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// The child of a test: connects, is accepted, and, on request, forks a child of its own before it waits.
void call_and_stay(const std::string& name, bool fork_too) {
  auto* end = new End;
  auto* connection = new std::shared_ptr<Connection>(end->context->connect(end->qp, name, {}));
  eventually([&] { return (*connection)->state() != ConnectionState::connecting; });
  if (fork_too && fork() == 0) {
    alarm(30);
    for (;;) pause();
  }
}

}  // namespace

TEST("queue pairs can be reset and connected again, one end after the other") {
  End a, b;
  a.connect_to(b);
  b.connect_to(a);
  exchange(a, b);
  for (int round = 0; round < 3; ++round) {
    a.qp->modify({.state = QpState::reset});
    a.connect_to(b);  // b has not been reset yet
    b.qp->modify({.state = QpState::reset});
    b.connect_to(a);
    exchange(a, b);
    exchange(b, a);
  }
}

TEST("regions and queue pairs can be closed in any order") {
  for (int round = 0; round < 50; ++round) {
    End a, b;
    a.connect_to(b);
    b.connect_to(a);
    a.qp->modify({.state = QpState::reset});
    a.region->close();
    b.qp->close();
    b.region->close();
  }
}

// The thread that polls looks the arena up while the progress thread maps it.
TEST("a WRITE posted before the memory of the peer has arrived completes when it arrives") {
  End a, b;
  a.connect_to(b);
  b.connect_to(a);
  exchange(a, b);
  for (int round = 0; round < 500; ++round) {
    const auto group = std::make_shared<MemoryGroup>();  // for an arena of its own
    const auto memory = b.context->allocate(64, {.peer_access = access::all, .group = group});
    const auto region = b.pd->register_memory(memory->data(), memory->size(), access::all, false);
    const SendRequest request{.id = 3,
                              .opcode = Opcode::write,
                              .rkey = region->rkey(),
                              .remote_addr = reinterpret_cast<uint64_t>(memory->data()),
                              .local = {&a.piece, 1}};
    CHECK(a.qp->post_send({&request, 1}).accepted == 1);
    Completion completion;
    for (const uint64_t began = now_ns(); a.cq->poll({&completion, 1}) == 0;) {
      CHECK(now_ns() - began < kTimeoutNs);
    }
    CHECK(completion.status == Status::success);
  }
}

TEST("a program may not move a queue pair that the connection manager is moving") {
  End a, b;
  const auto listener = b.context->listen(service(), 4);
  const auto connection = a.context->connect(a.qp, service(), {});
  bool refused = false;
  try {
    a.connect_to(b);
  } catch (const Error& error) {
    refused = error.code() == "bad_transition";
  }
  CHECK(refused);
}

TEST("an initiator that died before it was accepted leaves a failed connection and a flushed receive") {
  End end;
  const auto listener = end.context->listen(service(), 4);
  const pid_t pid = child([name = service()] { call_and_stay(name, false); });
  std::shared_ptr<ConnectRequest> request;
  CHECK(eventually([&] { return (request = listener->next()) != nullptr; }));
  remove_link(pid);
  usleep(50'000);
  const auto connection = request->accept(end.qp, {});
  end.post_receive();
  CHECK(end.wait().status == Status::wr_flush_err);
  CHECK(connection->state() != ConnectionState::established);
}

TEST("a peer's death is noticed although a child that it forked lives on") {
  End end;
  const auto listener = end.context->listen(service(), 4);
  const pid_t pid = child([name = service()] { call_and_stay(name, true); });
  std::shared_ptr<ConnectRequest> request;
  CHECK(eventually([&] { return (request = listener->next()) != nullptr; }));
  const auto connection = request->accept(end.qp, {});
  CHECK(eventually([&] { return connection->state() == ConnectionState::established; }));
  usleep(100'000);  // time for its fork
  remove_link(pid);
  CHECK(eventually([&] { return connection->state() == ConnectionState::disconnected; }));
  CHECK(kill(-pid, SIGKILL) == 0);  // the child's child was still there
}

RUN_TESTS()
