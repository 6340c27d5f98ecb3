// Several threads on iWARP queue pairs over real sockets: they post, poll, register and close, concurrently
// with the progress threads of both ends.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "providers/iwarp/provider.h"
#include "providers/soft/qp_states.h"
#include "util/clock.h"

using namespace verbena;

namespace {

constexpr uint64_t kTimeoutNs = 30'000'000'000;

struct End {
  explicit End(const std::shared_ptr<Context>& on) : context(on) {
    domain = context->alloc_pd();
    cq = context->create_cq(1024);
    recv_cq = context->create_cq(1024);
    qp = domain->create_qp({.send_cq = cq, .recv_cq = recv_cq, .limits = {.max_send = 64, .max_recv = 64}});
    region = domain->register_memory(memory.data(), memory.size(), access::all, false);
  }
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> domain;
  std::shared_ptr<CompletionQueue> cq, recv_cq;
  std::shared_ptr<QueuePair> qp;
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 18);
  std::shared_ptr<MemoryRegion> region;

  uint64_t at(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }
  void connect_to(const End& peer) const {
    const PortAttributes port = peer.context->query().ports[0];
    soft::move_to_init(*qp);
    soft::move_to_rts(*qp, {.dest_gid = port.gids[0],
                            .dest_lid = port.lid,
                            .dest_qp_num = peer.qp->number(),
                            .max_rd_atomic = 8,
                            .max_dest_rd_atomic = 8});
  }
};

struct Pair {
  Pair() : a(iwarp::make_provider()->open("lo")), b(iwarp::make_provider()->open("lo")) {
    a.connect_to(b);
    b.connect_to(a);
  }
  End a, b;
};

void run_all(const std::vector<std::function<void()>>& jobs) {
  std::vector<std::jthread> threads;
  threads.reserve(jobs.size());
  for (const auto& job : jobs) threads.emplace_back(job);
}

// Keeps `count` requests of one opcode in progress on `from`; their memory is [offset, offset+length) on both
// sides.
void stream(End& from, const End& to, Opcode opcode, size_t offset, uint32_t length, int count) {
  const uint64_t deadline = now_ns() + kTimeoutNs;
  const Sge local{from.at(offset), length, from.region->lkey()};
  int posted = 0, done = 0;
  while (done < count) {
    CHECK(now_ns() < deadline);
    if (posted < count) {
      const SendRequest request{.opcode = opcode,
                                .rkey = to.region->rkey(),
                                .remote_addr = to.at(offset),
                                .compare_add = 1,
                                .local = {&local, 1}};
      posted += static_cast<int>(from.qp->post_send({&request, 1}).accepted);
    }
    Completion completions[16];
    const size_t n = from.cq->poll(completions);
    for (size_t i = 0; i < n; ++i) CHECK(completions[i].status == Status::success);
    done += static_cast<int>(n);
  }
}

void receive(End& end, size_t offset, uint32_t length, int count) {
  const uint64_t deadline = now_ns() + kTimeoutNs;
  const Sge local{end.at(offset), length, end.region->lkey()};
  int posted = 0, done = 0;
  while (done < count) {
    CHECK(now_ns() < deadline);
    const RecvRequest request{.local = {&local, 1}};
    if (posted < count) posted += static_cast<int>(end.qp->post_recv({&request, 1}).accepted);
    Completion completions[16];
    const size_t n = end.recv_cq->poll(completions);
    for (size_t i = 0; i < n; ++i) CHECK(completions[i].status == Status::success);
    done += static_cast<int>(n);
  }
}

}  // namespace

TEST("messages flow both ways while both ends poll") {
  Pair pair;
  run_all({[&] { stream(pair.a, pair.b, Opcode::send, 0, 3000, 400); },
           [&] { stream(pair.b, pair.a, Opcode::send, 0, 3000, 400); },
           [&] { receive(pair.a, 65536, 4096, 400); }, [&] { receive(pair.b, 65536, 4096, 400); }});
}

TEST("one-sided operations work while regions are opened and closed") {
  Pair pair;
  std::atomic<bool> stop{false};
  run_all({[&] {
             stream(pair.a, pair.b, Opcode::write, 0, 100'000, 60);
             stream(pair.a, pair.b, Opcode::read, 0, 100'000, 60);
             stream(pair.a, pair.b, Opcode::fetch_add, 0, 8, 60);
             stop = true;
           },
           [&] {
             std::array<std::byte, 256> scratch{};
             while (!stop)
               pair.b.domain->register_memory(scratch.data(), scratch.size(), access::all, false)->close();
           }});
}

TEST("a queue pair may be closed in the middle of traffic") {
  for (int round = 0; round < 5; ++round) {
    Pair pair;
    run_all({[&] {
               const Sge local{pair.a.at(0), 50'000, pair.a.region->lkey()};
               const SendRequest request{.opcode = Opcode::write,
                                         .rkey = pair.b.region->rkey(),
                                         .remote_addr = pair.b.at(0),
                                         .local = {&local, 1}};
               const uint64_t deadline = now_ns() + kTimeoutNs;
               for (bool broken = false; !broken;) {
                 CHECK(now_ns() < deadline);
                 pair.a.qp->post_send({&request, 1});
                 Completion completion;
                 while (pair.a.cq->poll({&completion, 1}) == 1) broken = completion.status != Status::success;
               }
             },
             [&] {
               std::this_thread::sleep_for(std::chrono::milliseconds(20));
               pair.b.region->close();
               pair.b.qp->close();
             }});
    CHECK(pair.a.qp->state() == QpState::err);
  }
}

TEST("a managed connection is disconnected by one thread while another waits") {
  for (int round = 0; round < 10; ++round) {
    End a(iwarp::make_provider()->open("lo")), b(iwarp::make_provider()->open("lo"));
    auto listener = b.context->listen("", 4);
    auto calling = a.context->connect(a.qp, listener->address(), {});
    std::shared_ptr<ConnectRequest> request;
    const uint64_t deadline = now_ns() + kTimeoutNs;
    while (!(request = listener->next())) CHECK(now_ns() < deadline);
    auto accepted = request->accept(b.qp, {});
    while (calling->state() == ConnectionState::connecting) CHECK(now_ns() < deadline);
    run_all({[&] { calling->disconnect(); },
             [&] {
               while (accepted->state() != ConnectionState::disconnected) CHECK(now_ns() < deadline);
             }});
    while (b.qp->state() != QpState::err) CHECK(now_ns() < deadline);
    CHECK(a.qp->state() == QpState::err);
  }
}

RUN_TESTS()
