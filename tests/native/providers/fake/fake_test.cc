// The fake wire: verbs' rules and statuses, damaged packets, virtual time, and its connection manager.
#include <poll.h>

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "check.h"
#include "providers/fake/provider.h"
#include "providers/soft/qp_states.h"
#include "util/error.h"

namespace {

using namespace verbena;

constexpr size_t kWords = 32;
constexpr size_t kBytes = kWords * sizeof(uint64_t);

std::shared_ptr<Provider> provider() {
  static const auto made = fake::make_provider();
  return made;
}

// A queue pair with its completion queues and a buffer that is registered with all rights.
struct End {
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> pd;
  std::shared_ptr<CompletionQueue> cq, recv_cq;
  std::shared_ptr<SharedReceiveQueue> srq;
  std::shared_ptr<QueuePair> qp;
  std::vector<uint64_t> words = std::vector<uint64_t>(kWords);
  std::shared_ptr<MemoryRegion> region;

  explicit End(uint32_t cq_depth = 64, bool shared_receives = false,
               std::shared_ptr<Context> existing = nullptr)
      : context(existing ? existing : provider()->open("")) {
    pd = context->alloc_pd();
    cq = context->create_cq(cq_depth);
    recv_cq = context->create_cq(64);
    if (shared_receives) srq = pd->create_srq(8, 2);
    qp = pd->create_qp({.send_cq = cq, .recv_cq = recv_cq, .srq = srq, .limits = {.max_send = 32}});
    region = pd->register_memory(bytes(), kBytes, access::all, false);
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
  uint64_t addr(size_t offset = 0) { return reinterpret_cast<uint64_t>(bytes()) + offset; }
  Sge sge(size_t offset, uint32_t length) { return {addr(offset), length, region->lkey()}; }
  void fill(const char* text, size_t offset = 0) { std::memcpy(bytes() + offset, text, std::strlen(text)); }
  bool holds(const char* text, size_t offset = 0) {
    return std::memcmp(bytes() + offset, text, std::strlen(text)) == 0;
  }
  PostError post(SendRequest request, Sge local) {
    request.local = {&local, 1};
    return qp->post_send({&request, 1}).error;
  }
  void expect(Sge local, uint64_t id = 0) {
    const RecvRequest request{.id = id, .local = {&local, 1}};
    CHECK((srq ? srq->post({&request, 1}) : qp->post_recv({&request, 1})).accepted == 1);
  }
  Gid gid() const { return context->query().ports.at(0).gids.at(0); }
};

struct Settings {
  uint32_t access_flags = access::all;
  uint8_t min_rnr_timer = 1, rnr_retry = 7, timeout = 2, retry_count = 3;
};

void connect(End& from, const Gid& gid, uint32_t qp_num, const Settings& with = {}) {
  soft::move_to_init(*from.qp, with.access_flags);
  soft::move_to_rts(*from.qp, {.dest_gid = gid,
                               .dest_qp_num = qp_num,
                               .min_rnr_timer = with.min_rnr_timer,
                               .timeout = with.timeout,
                               .retry_count = with.retry_count,
                               .rnr_retry = with.rnr_retry});
}

struct Pair {
  End a, b;

  explicit Pair(const Settings& with = {}, uint32_t cq_depth = 64, bool shared_receives = false)
      : a(cq_depth), b(64, shared_receives) {
    connect_both(with);
  }
  void connect_both(const Settings& with = {}) {
    connect(a, b.gid(), b.qp->number(), with);
    connect(b, a.gid(), a.qp->number(), with);
  }
  SendRequest to_b(Opcode opcode, size_t offset = 0) {
    return {.opcode = opcode, .rkey = b.region->rkey(), .remote_addr = b.addr(offset)};
  }
};

std::optional<Completion> poll_one(CompletionQueue& cq, int polls = 1) {
  Completion completion;
  for (int i = 0; i < polls; ++i) {
    if (cq.poll({&completion, 1}) == 1) return completion;
  }
  return std::nullopt;
}

Completion take(CompletionQueue& cq, int polls = 100'000) {
  const auto completion = poll_one(cq, polls);
  CHECK(completion.has_value());
  return *completion;
}

bool is_readable(int fd) {
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, 0) == 1;
}

// Damages the given packets, counted from 0, while it exists.
class Damage {
 public:
  explicit Damage(std::vector<bool> which, bool for_ever = false) {
    fake::set_packet_tap([this, which, for_ever](std::span<std::byte> packet) {
      const size_t index = seen_++;
      if (for_ever || (index < which.size() && which[index])) packet[packet.size() / 2] ^= std::byte{4};
    });
  }
  ~Damage() { fake::set_packet_tap({}); }
  Damage(const Damage&) = delete;
  Damage& operator=(const Damage&) = delete;
  size_t seen() const { return seen_; }

 private:
  size_t seen_ = 0;
};

TEST("a message fills the posted receive and both ends complete") {
  Pair pair;
  pair.a.fill("hello");
  pair.b.expect(pair.b.sge(8, 16), 7);
  CHECK(pair.a.post({.id = 5, .opcode = Opcode::send_with_imm, .immediate = 99}, pair.a.sge(0, 5)) ==
        PostError::none);
  const Completion sent = take(*pair.a.cq), arrived = take(*pair.b.recv_cq);
  CHECK(sent.id == 5 && sent.status == Status::success && sent.opcode == WcOpcode::send);
  CHECK(arrived.id == 7 && arrived.opcode == WcOpcode::recv && arrived.has_immediate &&
        arrived.immediate == 99);
  CHECK(arrived.byte_count == 5 && arrived.qp_num == pair.b.qp->number());
  CHECK(pair.b.holds("hello", 8));
}

TEST("one-sided requests move bytes in the right direction") {
  Pair pair;
  pair.a.fill("write");
  pair.a.post(pair.to_b(Opcode::write, 16), pair.a.sge(0, 5));
  CHECK(take(*pair.a.cq).status == Status::success && pair.b.holds("write", 16));
  pair.a.post(pair.to_b(Opcode::read, 16), pair.a.sge(64, 5));
  CHECK(take(*pair.a.cq).opcode == WcOpcode::read && pair.a.holds("write", 64));
  CHECK(!poll_one(*pair.b.recv_cq, 10));

  pair.b.expect(pair.b.sge(0, 0), 3);
  SendRequest announced = pair.to_b(Opcode::write_with_imm, 32);
  announced.immediate = 4;
  pair.a.post(announced, pair.a.sge(0, 5));
  const Completion arrived = take(*pair.b.recv_cq);
  CHECK(arrived.opcode == WcOpcode::recv_rdma_with_imm && arrived.immediate == 4 && arrived.byte_count == 5);
  CHECK(pair.b.holds("write", 32));
}

TEST("atomics return what was there before") {
  Pair pair;
  pair.b.words[1] = 40;
  SendRequest add = pair.to_b(Opcode::fetch_add, 8);
  add.compare_add = 2;
  pair.a.post(add, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::success && pair.a.words[0] == 40 && pair.b.words[1] == 42);
  SendRequest swap = pair.to_b(Opcode::compare_swap, 8);
  swap.compare_add = 42;
  swap.swap = 7;
  pair.a.post(swap, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::success && pair.a.words[0] == 42 && pair.b.words[1] == 7);
  pair.a.post(swap, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::success && pair.a.words[0] == 7 && pair.b.words[1] == 7);
}

TEST("completions come in posting order, and none for what was not signaled") {
  Pair pair;
  for (uint64_t id = 0; id < 20; ++id) {
    SendRequest request = pair.to_b(id % 2 ? Opcode::read : Opcode::write);
    request.id = id;
    request.flags = id % 4 == 3 ? send_flag::signaled : 0;
    CHECK(pair.a.post(request, pair.a.sge(0, 8)) == PostError::none);
  }
  for (uint64_t id = 3; id < 20; id += 4) CHECK(take(*pair.a.cq).id == id);
  CHECK(!poll_one(*pair.a.cq, 100));
}

TEST("a message longer than the receive breaks both ends and places nothing") {
  Pair pair;
  pair.b.expect(pair.b.sge(0, 4), 1);
  pair.b.expect(pair.b.sge(0, 4), 2);
  pair.a.fill("too long");
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::rem_inv_req_err);
  CHECK(take(*pair.b.recv_cq).status == Status::loc_len_err);
  CHECK(take(*pair.b.recv_cq).status == Status::wr_flush_err);
  CHECK(pair.a.qp->state() == QpState::err && pair.b.qp->state() == QpState::err && pair.b.words[0] == 0);
}

TEST("an access that the target has not granted is REM_ACCESS_ERR and moves no byte") {
  const auto refused = [](auto change) {
    Pair pair;
    pair.a.fill("forbidden");
    SendRequest request = pair.to_b(Opcode::write);
    change(pair, request);
    pair.a.post(request, pair.a.sge(0, 8));
    CHECK(take(*pair.a.cq).status == Status::rem_access_err);
    CHECK(pair.a.qp->state() == QpState::err && pair.b.qp->state() == QpState::err && pair.b.words[0] == 0);
  };
  refused([](Pair&, SendRequest& request) { request.rkey ^= 1; });
  refused([](Pair&, SendRequest& request) { request.remote_addr += kBytes - 7; });
  refused([](Pair&, SendRequest& request) { request.remote_addr -= 1; });
  refused([](Pair& pair, SendRequest&) { pair.b.region->close(); });
  refused([](Pair& pair, SendRequest& request) {
    pair.b.region = pair.b.pd->register_memory(pair.b.bytes(), kBytes, access::local_write, false);
    request.rkey = pair.b.region->rkey();
  });
  refused([](Pair& pair, SendRequest& request) {
    pair.b.region = pair.b.context->alloc_pd()->register_memory(pair.b.bytes(), kBytes, access::all, false);
    request.rkey = pair.b.region->rkey();
  });
}

TEST("operations that the queue pair does not allow, and misaligned atomics, are REM_INV_REQ_ERR") {
  Pair closed_to_writes({.access_flags = access::remote_read});
  closed_to_writes.a.post(closed_to_writes.to_b(Opcode::write), closed_to_writes.a.sge(0, 8));
  CHECK(take(*closed_to_writes.a.cq).status == Status::rem_inv_req_err);
  Pair pair;
  pair.a.post(pair.to_b(Opcode::fetch_add, 4), pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::rem_inv_req_err && pair.b.qp->state() == QpState::err);
}

TEST("local mistakes complete in error before anything is sent") {
  Pair pair;
  Damage watch({});
  Sge unknown = pair.a.sge(0, 8);
  unknown.lkey ^= 1;
  pair.a.post(pair.to_b(Opcode::write), unknown);
  CHECK(take(*pair.a.cq).status == Status::loc_prot_err && watch.seen() == 0);
  CHECK(pair.b.qp->state() == QpState::rts);
  Pair other;
  other.a.post(other.to_b(Opcode::fetch_add), other.a.sge(0, 4));
  CHECK(take(*other.a.cq).status == Status::loc_len_err && watch.seen() == 0);
}

TEST("a receive into memory that is gone is LOC_PROT_ERR there and REM_OP_ERR at the sender") {
  Pair pair;
  pair.b.expect(pair.b.sge(0, 8));
  pair.b.region->close();
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::rem_op_err &&
        take(*pair.b.recv_cq).status == Status::loc_prot_err);
}

TEST("a sender waits for a receive and what is behind it waits too") {
  Pair pair;
  pair.a.fill("later");
  pair.a.post({.id = 1, .opcode = Opcode::send}, pair.a.sge(0, 5));
  pair.a.post(
      {.id = 2, .opcode = Opcode::write, .rkey = pair.b.region->rkey(), .remote_addr = pair.b.addr(64)},
      pair.a.sge(0, 5));
  CHECK(!poll_one(*pair.a.cq, 5'000) && !pair.b.holds("later", 64));
  pair.b.expect(pair.b.sge(0, 8));
  CHECK(take(*pair.b.recv_cq).status == Status::success);  // a poll on either end advances the clock
  CHECK(take(*pair.a.cq).id == 1 && take(*pair.a.cq).id == 2 && pair.b.holds("later", 64));
}

TEST("finite RNR retries take exactly their time on the virtual clock") {
  Pair pair({.min_rnr_timer = 1, .rnr_retry = 3});
  const uint64_t began = fake::virtual_now_ns();
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::rnr_retry_exc_err);
  CHECK(fake::virtual_now_ns() - began == 3 * 10'000);
  CHECK(pair.a.qp->state() == QpState::err && pair.b.qp->state() == QpState::rts);
  Pair impatient({.rnr_retry = 0});
  impatient.a.post({.opcode = Opcode::send}, impatient.a.sge(0, 8));
  CHECK(take(*impatient.a.cq, 1).status == Status::rnr_retry_exc_err);
}

TEST(
    "requests to an absent or closed peer end with RETRY_EXC_ERR after all retries, and the rest is "
    "flushed") {
  End lonely;
  connect(lonely, Gid{1}, 77, {.timeout = 1, .retry_count = 2});
  const uint64_t began = fake::virtual_now_ns();
  lonely.post({.id = 1}, lonely.sge(0, 8));
  lonely.post({.id = 2}, lonely.sge(0, 8));
  CHECK(take(*lonely.cq).status == Status::retry_exc_err);
  CHECK(fake::virtual_now_ns() - began == 27'000);  // 3 x 8.192 us, each seen at the next poll
  CHECK(take(*lonely.cq).status == Status::wr_flush_err && lonely.qp->state() == QpState::err);

  Pair pair;
  pair.b.qp->close();
  pair.a.post(pair.to_b(Opcode::read), pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::retry_exc_err);
}

TEST("a damaged request is sent again, and nothing of it is placed before") {
  Pair pair;
  const Damage damage({true, true});
  pair.a.fill("intact");
  pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 6));
  CHECK(damage.seen() == 1 && pair.b.words[0] == 0);
  CHECK(take(*pair.a.cq).status == Status::success && pair.b.holds("intact"));
  CHECK(damage.seen() == 4);  // three requests and a response
}

TEST("a request whose response is damaged is executed once") {
  Pair pair;
  const Damage damage({false, true});
  SendRequest add = pair.to_b(Opcode::fetch_add);
  add.compare_add = 5;
  pair.a.words[1] = 99;
  pair.a.post(add, pair.a.sge(8, 8));
  CHECK(take(*pair.a.cq).status == Status::success);
  CHECK(pair.b.words[0] == 5 && pair.a.words[1] == 0 && damage.seen() == 4);

  const Damage again({false, true});
  pair.b.expect(pair.b.sge(64, 8), 1);
  pair.b.expect(pair.b.sge(64, 8), 2);
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::success && take(*pair.b.recv_cq).id == 1);
  CHECK(!poll_one(*pair.b.recv_cq, 1'000));
}

TEST("a wire that damages everything ends in RETRY_EXC_ERR with clean memory at both ends") {
  Pair pair({.retry_count = 2});
  const Damage damage({}, true);
  pair.a.fill("never");
  pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 5));
  CHECK(take(*pair.a.cq).status == Status::retry_exc_err && damage.seen() == 3 && pair.b.words[0] == 0);
}

TEST("any damaged bit of a packet is noticed") {
  Pair pair({.timeout = 1, .retry_count = 7});
  pair.a.fill("12345678");
  for (size_t bit = 0; bit < (80 + 8) * 8; ++bit) {
    size_t seen = 0;
    fake::set_packet_tap([&](std::span<std::byte> packet) {
      if (seen++ == 0) packet[bit / 8] ^= std::byte{1} << (bit % 8);
    });
    pair.b.words[0] = 0;
    pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 8));
    const uint64_t after_damage = pair.b.words[0];
    const Status status = take(*pair.a.cq).status;
    fake::set_packet_tap({});
    CHECK(after_damage == 0 && status == Status::success && pair.b.holds("12345678") && seen == 3);
  }
}

TEST("a sleeper is woken by a completion once, and while a timer runs") {
  Pair pair({.min_rnr_timer = 14, .rnr_retry = 2});
  pair.a.cq->arm(false);
  pair.b.recv_cq->arm(false);
  CHECK(!is_readable(pair.a.cq->fileno()));
  pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 8));
  CHECK(is_readable(pair.a.cq->fileno()) && !is_readable(pair.b.recv_cq->fileno()));
  pair.a.cq->acknowledge();
  CHECK(!is_readable(pair.a.cq->fileno()) && take(*pair.a.cq).status == Status::success);

  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));  // no receive is posted
  CHECK(is_readable(pair.b.recv_cq->fileno()));
  std::optional<Completion> failed;
  int turns = 0;
  for (; !failed && turns < 100; ++turns) {
    pair.a.cq->arm(false);
    failed = poll_one(*pair.a.cq);
    CHECK(failed || is_readable(pair.a.cq->fileno()));
    pair.a.cq->acknowledge();
  }
  CHECK(failed && failed->status == Status::rnr_retry_exc_err && turns > 10);
}

TEST("going to ERR flushes both queues in order") {
  Pair pair;
  pair.b.expect(pair.b.sge(0, 8), 1);
  pair.b.expect(pair.b.sge(0, 8), 2);
  pair.b.qp->modify({.state = QpState::err});
  CHECK(take(*pair.b.recv_cq).id == 1 && take(*pair.b.recv_cq).status == Status::wr_flush_err);
  pair.b.post({.id = 9}, pair.b.sge(0, 8));
  CHECK(take(*pair.b.cq).status == Status::wr_flush_err);
}

TEST("a queue pair can be reset and connected again") {
  Pair pair;
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));  // stays unanswered
  for (End* end : {&pair.a, &pair.b}) end->qp->modify({.state = QpState::reset});
  pair.connect_both();
  pair.b.expect(pair.b.sge(0, 8), 3);
  pair.a.post({.id = 4}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).id == 4 && take(*pair.b.recv_cq).id == 3 && !poll_one(*pair.a.cq, 100));
}

TEST("a completion queue that is too small reports it and its queue pair fails") {
  Pair pair({}, 2);
  for (int i = 0; i < 3; ++i) pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 8));
  CHECK(pair.a.cq->overrun() && pair.a.qp->state() == QpState::err);
  CHECK(take(*pair.a.cq).status == Status::success && take(*pair.a.cq).status == Status::success);
  pair.a.post({.id = 8}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).id == 8);
}

TEST("a failure that does not fit into the completion queue breaks the queue pair too") {
  Pair pair({}, 1);
  pair.a.post(pair.to_b(Opcode::write), pair.a.sge(0, 8));
  SendRequest wrong = pair.to_b(Opcode::write);
  wrong.rkey ^= 1;
  pair.a.post(wrong, pair.a.sge(0, 8));
  CHECK(pair.a.cq->overrun() && pair.a.qp->state() == QpState::err);
  CHECK(take(*pair.a.cq).status == Status::success);
  pair.a.post({.id = 8}, pair.a.sge(0, 8));
  CHECK(take(*pair.a.cq).status == Status::wr_flush_err);
}

TEST("a full send queue is back-pressure") {
  Pair pair;
  for (int i = 0; i < 32; ++i)
    CHECK(pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8)) == PostError::none);
  CHECK(pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8)) == PostError::full);
}

TEST("a shared receive queue serves its queue pairs, and one context is enough") {
  Pair pair({}, 64, true);
  End third(64, false, pair.a.context);
  pair.b.expect(pair.b.sge(0, 8), 6);
  pair.a.post({.opcode = Opcode::send}, pair.a.sge(0, 8));
  CHECK(take(*pair.b.recv_cq).id == 6);
  CHECK(third.gid() == pair.a.gid() && third.gid() != pair.b.gid());
}

TEST("connect and accept take both to RTS and carry private data; disconnect ends both") {
  End caller, server;
  const auto listener = server.context->listen("", 4);
  CHECK(!is_readable(listener->fileno()) && !listener->next());
  const auto calling = caller.context->connect(caller.qp, listener->address(), {.private_data = {1, 2}});
  CHECK(calling->state() == ConnectionState::connecting && is_readable(listener->fileno()));
  const auto request = listener->next();
  CHECK(request && request->private_data() == std::vector<uint8_t>({1, 2}) &&
        !is_readable(listener->fileno()));
  const auto accepted = request->accept(server.qp, {.private_data = {3}});
  CHECK(calling->state() == ConnectionState::established && is_readable(calling->fileno()));
  CHECK(calling->private_data() == std::vector<uint8_t>({3}) && calling->peer() == listener->address());
  calling->acknowledge();
  accepted->acknowledge();
  server.expect(server.sge(0, 8));
  caller.post({.opcode = Opcode::send}, caller.sge(0, 8));
  CHECK(take(*server.recv_cq).status == Status::success);

  server.expect(server.sge(0, 8));
  caller.qp->close();
  CHECK(accepted->state() == ConnectionState::disconnected && is_readable(accepted->fileno()));
  CHECK(server.qp->state() == QpState::err && take(*server.recv_cq).status == Status::wr_flush_err);
}

TEST("a failed connect reports why, and may be repeated") {
  End caller, server;
  const auto failed = caller.context->connect(caller.qp, "nobody", {});
  CHECK(failed->state() == ConnectionState::failed && failed->error_code() == "unreachable");
  CHECK(is_readable(failed->fileno()));

  const auto listener = server.context->listen("somebody", 4);
  const auto late = caller.context->connect(caller.qp, "somebody", {.timeout_ms = 0});
  CHECK(late->state() == ConnectionState::failed && late->error_code() == "connect_timeout" &&
        !listener->next());

  const auto turned_down = caller.context->connect(caller.qp, "somebody", {});
  listener->next()->reject(std::vector<uint8_t>{8});
  CHECK(turned_down->state() == ConnectionState::rejected && turned_down->private_data().at(0) == 8);
  const auto forgotten = caller.context->connect(caller.qp, "somebody", {});
  listener->next().reset();
  CHECK(forgotten->state() == ConnectionState::rejected && caller.qp->state() == QpState::reset);

  const auto calling = caller.context->connect(caller.qp, "somebody", {});
  const auto accepted = listener->next()->accept(server.qp, {});
  CHECK(calling->state() == ConnectionState::established);
  forgotten->disconnect();
  CHECK(calling->state() == ConnectionState::established && caller.qp->state() == QpState::rts);
  calling->disconnect();
  CHECK(accepted->state() == ConnectionState::disconnected && server.qp->state() == QpState::err);
}

TEST("a name has one listener, and is free after it is closed") {
  const auto context = provider()->open("fake0");
  const auto first = context->listen("name", 1);
  bool refused = false;
  try {
    context->listen("name", 1);
  } catch (const Error& error) {
    refused = error.code() == "address_in_use";
  }
  CHECK(refused);
  first->close();
  CHECK(context->listen("name", 1)->address() == "name");
}

TEST("threads may use both directions at once: nothing is lost and no thread waits forever") {
  Pair pair({.timeout = 14});
  constexpr uint64_t kRequests = 300;
  const auto work = [](End& from, End& to) {
    SendRequest add{
        .opcode = Opcode::fetch_add, .rkey = to.region->rkey(), .remote_addr = to.addr(), .compare_add = 1};
    for (uint64_t i = 0; i < kRequests; ++i) {
      while (from.post(add, from.sge(64, 8)) == PostError::full) std::this_thread::yield();
      Completion completion;
      while (from.cq->poll({&completion, 1}) == 0) std::this_thread::yield();
      CHECK(completion.status == Status::success);
    }
  };
  std::thread other([&] { work(pair.b, pair.a); });
  work(pair.a, pair.b);
  other.join();
  CHECK(pair.a.words[0] == kRequests && pair.b.words[0] == kRequests);
}

}  // namespace

RUN_TESTS()
