// Binds the tracked operations of a queue pair: a blocking call posts and waits; a start_… call posts and
// returns a token. This is Python's hot path: one native call, no allocation, and the GIL is not released if
// the operation completes at once.
#include <sched.h>

#include <optional>

#include "bind/bind.h"
#include "bind/errors.h"
#include "bind/unlocked.h"
#include "bind/verbs/queues.h"
#include "bind/verbs/remote.h"
#include "bind/verbs/waiting.h"
#include "verbs/batch.h"

namespace verbena::bind {
namespace {

constexpr uint64_t kLongBytes = 16 * 1024;  // from this length, a copy takes longer than releasing the GIL
constexpr int kFull = -1;                   // result of a start_… call: the queue is full

// The context of one tracked request.
struct Operation {
  QueuePairHandle& qp;
  CompletionRouter& router;
  const char* name;
  uint64_t length;
  nb::handle keep;  // must live until the request has ended
};

template <typename Post>
PostResult post_once(const Operation& op, Post post) {
  std::optional<Unlocked> unlocked;
  if (op.length >= kLongBytes) unlocked.emplace();
  const PostResult result = post();
  if (result.accepted == 1) op.router.pump();
  return result;
}

uint64_t begin(const Operation& op) {
  drop_references(op.router);
  const uint64_t id = op.router.begin(op.qp.number);
  if (id == 0)
    throw Error("limit_exceeded", op.name, "too many operations are under way on this completion queue");
  return id;
}

[[noreturn]] void raise_timeout(const Operation& op) {
  raise(setup_error("RESP_TIMEOUT_ERR", op.name, "the operation goes on without us", op.qp.peer));
}

// Posts again until the queue has room: true, with the result of the last post. False: the deadline passed.
template <typename Post>
bool post_when_room(const Operation& op, uint64_t deadline_ns, PostResult& result, Post post) {
  return wait_with_signals(deadline_ns, [&](uint64_t until_ns) {
    do {
      op.router.pump();
      result = post();
      if (result.accepted == 1 || result.error != PostError::full) return true;
      sched_yield();
    } while (now_ns() < until_ns);
    return false;
  });
}

// Ends the id of a request that did not finish, because a signal handler raised, the deadline passed, or the
// post was refused.
void give_up(const Operation& op, uint64_t id, bool posted) {
  if (posted) {
    op.router.abandon(id, keep_object(op.keep));
  } else {
    op.router.release(id);
  }
}

// The slow path of run(): the post was not accepted, or the operation did not complete at once.
template <typename Post>
Completion run_waiting(const Operation& op, uint64_t id, double timeout_s, PostResult result, Post post) {
  const uint64_t deadline_ns = deadline_after(timeout_s);
  bool finished = false;
  try {
    if (result.error != PostError::full || post_when_room(op, deadline_ns, result, post)) {
      uint32_t spin_us = kDefaultSpinUs;
      finished = result.accepted == 1 && wait_with_signals(deadline_ns, [&](uint64_t until_ns) {
                   return op.router.wait(id, until_ns, std::exchange(spin_us, 0));
                 });
    }
  } catch (const nb::python_error&) {
    give_up(op, id, result.accepted == 1);
    throw;
  }
  Completion done;
  if (finished) {
    op.router.take(id, done);
    return done;
  }
  give_up(op, id, result.accepted == 1);
  if (result.accepted == 0 && result.error != PostError::full)
    raise_post(result.error, 0, op.name, op.qp.peer);
  raise_timeout(op);
}

// Posts and waits. Raises if the post is refused, the completion reports an error, the deadline passes or a
// signal handler raises.
template <typename Post>
Completion run(const Operation& op, uint64_t id, double timeout_s, Post post) {
  Completion done;
  const PostResult result = post_once(op, post);
  if (result.accepted == 0 || !op.router.take(id, done)) done = run_waiting(op, id, timeout_s, result, post);
  if (done.status != Status::success) [[unlikely]]
    raise_completion(done.status, op.name, op.qp.peer);
  return done;
}

// Posts. Returns a token for watch(); kFull if the queue is full; or, if the operation has finished already,
// its completion (None unless `wants_completion`).
template <typename Post>
nb::object start(const Operation& op, uint64_t id, bool wants_completion, Post post) {
  const PostResult result = post_once(op, post);
  if (result.accepted == 0) {
    op.router.release(id);
    if (result.error == PostError::full) return nb::int_(kFull);
    raise_post(result.error, 0, op.name, op.qp.peer);
  }
  Completion done;
  if (!op.router.take(id, done)) return nb::int_(id);
  if (done.status != Status::success) raise_completion(done.status, op.name, op.qp.peer);
  return wants_completion ? nb::cast(done) : nb::none();
}

void check_reach(const LocalPieces& pieces, const RemoteMemory& remote, const char* name) {
  if (pieces.total_bytes() > remote.length) {
    throw Error("out_of_range", name,
                std::to_string(pieces.total_bytes()) + " local bytes for " + std::to_string(remote.length) +
                    " remote ones");
  }
}

SendRequest one_sided(Opcode opcode, const RemoteMemory& remote) {
  return {.opcode = opcode, .rkey = remote.rkey, .remote_addr = remote.addr};
}

// Calls `go(operation, id, post)`, which is run() or start(), for a request on the send queue.
template <typename Go>
auto with_send(QueuePairHandle& self, const char* name, const LocalPieces& pieces, SendRequest request,
               const nb::handle& keep, Go go) {
  QueuePair& qp = self.qp.use(name);
  const Operation op{self, *self.send_router, name, pieces.total_bytes(), keep};
  request.id = begin(op);
  request.local = pieces.span();
  return go(op, request.id, [&] { return qp.post_send({&request, 1}); });
}

template <typename Go>
auto with_read(QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote, Go go) {
  const LocalPieces pieces(local, false);
  check_reach(pieces, remote, "read");
  return with_send(self, "read", pieces, one_sided(Opcode::read, remote), local, go);
}

template <typename Go>
auto with_write(QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote,
                const nb::handle& immediate, bool solicited, Go go) {
  const LocalPieces pieces(local, true);
  check_reach(pieces, remote, "write");
  SendRequest request = one_sided(Opcode::write, remote);
  if (!immediate.is_none()) {
    request.opcode = Opcode::write_with_imm;
    request.immediate = nb::cast<uint32_t>(immediate);
  }
  if (solicited) request.flags |= send_flag::solicited;
  if (PyBytes_Check(local.ptr())) request.flags |= send_flag::inline_data;
  return with_send(self, "write", pieces, request, local, go);
}

template <typename Go>
auto with_message(QueuePairHandle& self, const nb::handle& local, const nb::handle& immediate,
                  bool inline_data, bool solicited, Go go) {
  const LocalPieces pieces(local, true);
  SendRequest request{.opcode = Opcode::send};
  if (!immediate.is_none()) {
    request.opcode = Opcode::send_with_imm;
    request.immediate = nb::cast<uint32_t>(immediate);
  }
  if (solicited) request.flags |= send_flag::solicited;
  if (inline_data || PyBytes_Check(local.ptr())) request.flags |= send_flag::inline_data;
  return with_send(self, "send", pieces, request, local, go);
}

template <typename Go>
auto with_recv(QueuePairHandle& self, const nb::handle& local, Go go) {
  QueuePair& qp = self.qp.use("recv");
  const LocalPieces pieces(local, false);
  const Operation op{self, *self.recv_router, "recv", 0, local};
  const RecvRequest request{.id = begin(op), .local = pieces.span()};
  return go(op, request.id, [&] { return qp.post_recv({&request, 1}); });
}

using Loan = std::shared_ptr<ScratchWords::Loan>;

// Python's handle on a scratch word: the result of an atomic that was started.
struct AtomicResult {
  Loan loan;
};

template <typename Go>
auto with_atomic(QueuePairHandle& self, Opcode opcode, const RemoteMemory& remote, uint64_t compare_add,
                 uint64_t swap, const nb::handle& keep, const Loan& loan, Go go) {
  const char* name = opcode == Opcode::fetch_add ? "fetch_add" : "compare_swap";
  if (remote.length < sizeof(uint64_t)) throw Error("out_of_range", name, "an atomic needs 8 bytes");
  QueuePair& qp = self.qp.use(name);
  SendRequest request = one_sided(opcode, remote);
  request.compare_add = compare_add;
  request.swap = swap;
  const Sge word = loan->piece();
  request.local = {&word, 1};
  const Operation op{self, *self.send_router, name, sizeof(uint64_t), keep};
  request.id = begin(op);
  return go(op, request.id, [&] { return qp.post_send({&request, 1}); });
}

auto blocking(double timeout_s) {
  return [timeout_s](const Operation& op, uint64_t id, auto post) { return run(op, id, timeout_s, post); };
}

auto starting(bool wants_completion = false) {
  return [wants_completion](const Operation& op, uint64_t id, auto post) {
    return start(op, id, wants_completion, post);
  };
}

uint64_t run_atomic(QueuePairHandle& self, Opcode opcode, const RemoteMemory& remote, uint64_t compare_add,
                    uint64_t swap, double timeout_s) {
  // The result is a Python object so that the router can hold it for an abandoned operation.
  const nb::object result = nb::cast(AtomicResult{self.scratch->lend()});
  const Loan loan = nb::cast<AtomicResult&>(result).loan;
  with_atomic(self, opcode, remote, compare_add, swap, result, loan, blocking(timeout_s));
  return loan->value();
}

nb::tuple start_atomic(QueuePairHandle& self, Opcode opcode, const RemoteMemory& remote, uint64_t compare_add,
                       uint64_t swap) {
  const nb::object result = nb::cast(AtomicResult{self.scratch->lend()});
  const Loan loan = nb::cast<AtomicResult&>(result).loan;
  return nb::make_tuple(with_atomic(self, opcode, remote, compare_add, swap, result, loan, starting()),
                        result);
}

size_t run_many(QueuePairHandle& self, Opcode opcode, const nb::object& local, const RemoteMemory& remote,
                const nb::object& operations) {
  const char* name = opcode == Opcode::read ? "read_many" : "write_many";
  QueuePair& qp = self.qp.use(name);
  const LocalPieces pieces(local, false);
  if (pieces.span().size() != 1) throw nb::value_error("one non-empty piece of local memory is needed");
  const BufferView view(operations, PyBUF_SIMPLE);
  if (view.size() % sizeof(BatchOperation) != 0 || reinterpret_cast<uintptr_t>(view.data()) % 8 != 0) {
    throw nb::value_error("operations are rows of three uint64: local offset, remote offset, length");
  }
  const std::span rows(reinterpret_cast<const BatchOperation*>(view.data()),
                       view.size() / sizeof(BatchOperation));
  const Sge& piece = pieces.span()[0];
  const BatchTarget target{.local_addr = piece.addr,
                           .local_length = piece.length,
                           .remote_addr = remote.addr,
                           .remote_length = remote.length,
                           .lkey = piece.lkey,
                           .rkey = remote.rkey};
  drop_references(*self.send_router);
  const std::shared_ptr<void> keep = keep_object(local);
  BatchResult result;
  {
    Unlocked unlocked;
    const auto no_signal = [&unlocked] {
      return unlocked.with_gil([] { return PyErr_CheckSignals() == 0; });
    };
    result = run_batch(qp, *self.send_router, opcode, target, rows, no_signal, keep);
  }
  switch (result.end) {
    case BatchEnd::complete:
      return rows.size();
    case BatchEnd::out_of_range:
      raise_batch(setup_error("out_of_range", name, "row " + std::to_string(result.completed), self.peer), 0);
    case BatchEnd::refused:
      raise_post(result.post_error, result.completed, name, self.peer);
    case BatchEnd::failed:
      raise_batch(completion_error(result.status, name, self.peer), result.completed);
    case BatchEnd::interrupted:
      throw nb::python_error();
  }
  return 0;
}

}  // namespace

void bind_operations(nb::module_& m) {
  nb::class_<AtomicResult>(m, "AtomicResult").def_prop_ro("value", [](const AtomicResult& self) {
    return self.loan->value();
  });

  auto qp = nb::borrow<nb::class_<QueuePairHandle>>(m.attr("QueuePair"));
  qp.def(
        "read",
        [](QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote, double timeout_s) {
          with_read(self, local, remote, blocking(timeout_s));
        },
        nb::arg("local"), nb::arg("remote"), nb::arg("timeout_s"))
      .def(
          "start_read",
          [](QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote) {
            return with_read(self, local, remote, starting());
          },
          nb::arg("local"), nb::arg("remote"),
          nb::sig("def start_read(self, local: object, remote: RemoteMemory) -> int | None"))
      .def(
          "write",
          [](QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote,
             const nb::handle& immediate, bool solicited, double timeout_s) {
            with_write(self, local, remote, immediate, solicited, blocking(timeout_s));
          },
          nb::arg("local"), nb::arg("remote"), nb::arg("immediate").none(), nb::arg("solicited"),
          nb::arg("timeout_s"))
      .def(
          "start_write",
          [](QueuePairHandle& self, const nb::handle& local, const RemoteMemory& remote,
             const nb::handle& immediate,
             bool solicited) { return with_write(self, local, remote, immediate, solicited, starting()); },
          nb::arg("local"), nb::arg("remote"), nb::arg("immediate").none(), nb::arg("solicited"),
          nb::sig("def start_write(self, local: object, remote: RemoteMemory, immediate: int | None,"
                  " solicited: bool) -> int | None"))
      .def(
          "send",
          [](QueuePairHandle& self, const nb::handle& local, const nb::handle& immediate, bool inline_data,
             bool solicited, double timeout_s) {
            with_message(self, local, immediate, inline_data, solicited, blocking(timeout_s));
          },
          nb::arg("local"), nb::arg("immediate").none(), nb::arg("inline_data"), nb::arg("solicited"),
          nb::arg("timeout_s"))
      .def(
          "start_send",
          [](QueuePairHandle& self, const nb::handle& local, const nb::handle& immediate, bool inline_data,
             bool solicited) {
            return with_message(self, local, immediate, inline_data, solicited, starting());
          },
          nb::arg("local"), nb::arg("immediate").none(), nb::arg("inline_data"), nb::arg("solicited"),
          nb::sig("def start_send(self, local: object, immediate: int | None, inline_data: bool,"
                  " solicited: bool) -> int | None"))
      .def(
          "recv",
          [](QueuePairHandle& self, const nb::handle& local, double timeout_s) {
            return with_recv(self, local, blocking(timeout_s));
          },
          nb::arg("local"), nb::arg("timeout_s"))
      .def(
          "start_recv",
          [](QueuePairHandle& self, const nb::handle& local) {
            return with_recv(self, local, starting(true));
          },
          nb::arg("local"), nb::sig("def start_recv(self, local: object) -> int | WorkCompletion"))
      .def("atomic", run_atomic, nb::arg("opcode"), nb::arg("remote"), nb::arg("compare_add"),
           nb::arg("swap"), nb::arg("timeout_s"))
      .def("start_atomic", start_atomic, nb::arg("opcode"), nb::arg("remote"), nb::arg("compare_add"),
           nb::arg("swap"),
           nb::sig("def start_atomic(self, opcode: Opcode, remote: RemoteMemory, compare_add: int, swap: int)"
                   " -> tuple[int | None, AtomicResult]"))
      .def("run_many", run_many, nb::arg("opcode"), nb::arg("local"), nb::arg("remote"),
           nb::arg("operations"));
  m.attr("FULL") = kFull;
}

}  // namespace verbena::bind
