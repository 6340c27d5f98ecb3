// _native.bench: the measuring loops and baselines of `verbena bench` and `verbena kv bench`. The loops run
// without the GIL, take QueuePairCore and CompletionQueueCore (the `core` of a queue pair or queue), and
// write samples to a buffer of doubles.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bench/baselines.h"
#include "bench/loops.h"
#include "bench/resp_load.h"
#include "bench/tcp.h"
#include "bind/bind.h"
#include "bind/buffer.h"
#include "util/error.h"

namespace verbena::bind {
namespace {

std::span<std::byte> bytes(const BufferView& view) { return {view.data(), view.size()}; }

std::span<double> doubles(const BufferView& view) {
  return {reinterpret_cast<double*>(view.data()), view.size() / sizeof(double)};
}

// A RingPair, and the buffer that keeps its mapping alive.
struct BoundRing {
  BoundRing(const nb::handle& object, uint32_t payload_bytes, uint32_t slots, int side)
      : memory(object, PyBUF_WRITABLE), ring(bytes(memory), payload_bytes, slots, side) {}

  BufferView memory;
  bench::RingPair ring;
};

using Released = nb::call_guard<nb::gil_scoped_release>;

void bind_ring(nb::module_& m) {
  nb::class_<BoundRing>(m, "RingPair",
                        "A bare message ring between two processes, in a zeroed shared mapping.")
      .def(nb::init<const nb::handle&, uint32_t, uint32_t, int>(), nb::arg("memory"), nb::kw_only(),
           nb::arg("payload_bytes"), nb::arg("slots"), nb::arg("side"))
      .def_static("size_bytes", &bench::RingPair::size_bytes, nb::arg("payload_bytes"), nb::arg("slots"))
      .def(
          "ping",
          [](BoundRing& self, const nb::handle& samples_ns, uint32_t rounds, uint64_t timeout_ns) {
            const BufferView samples(samples_ns, PyBUF_WRITABLE);
            const nb::gil_scoped_release unlocked;
            return self.ring.ping(doubles(samples), rounds, timeout_ns);
          },
          nb::arg("samples_ns"), nb::kw_only(), nb::arg("rounds") = 1,
          nb::arg("timeout_ns") = bench::kTimeoutNs)
      .def(
          "pong",
          [](BoundRing& self, uint64_t rounds, uint64_t timeout_ns) {
            return self.ring.pong(rounds, timeout_ns);
          },
          nb::arg("rounds"), nb::kw_only(), nb::arg("timeout_ns") = bench::kTimeoutNs, Released())
      .def(
          "produce",
          [](BoundRing& self, uint64_t messages, uint64_t timeout_ns) {
            return self.ring.produce(messages, timeout_ns);
          },
          nb::arg("messages"), nb::kw_only(), nb::arg("timeout_ns") = bench::kTimeoutNs, Released())
      .def(
          "consume",
          [](BoundRing& self, uint64_t messages, uint64_t timeout_ns) {
            return self.ring.consume(messages, timeout_ns);
          },
          nb::arg("messages"), nb::kw_only(), nb::arg("timeout_ns") = bench::kTimeoutNs, Released());

  m.def(
      "copy_loop",
      [](const nb::handle& target, const nb::handle& source, const nb::handle& samples_ns) {
        const BufferView to(target, PyBUF_WRITABLE), from(source, PyBUF_SIMPLE),
            samples(samples_ns, PyBUF_WRITABLE);
        if (to.size() < from.size()) {
          throw Error("invalid_argument", "copy", "the target is shorter than the source");
        }
        const nb::gil_scoped_release unlocked;
        bench::copy_loop(bytes(to), bytes(from), doubles(samples));
      },
      nb::arg("target"), nb::arg("source"), nb::arg("samples_ns"), "memcpy once per sample.");
}

void bind_tcp(nb::module_& m) {
  nb::class_<bench::TcpPair>(m, "TcpPair", "One end of a bare TCP connection, given by its file descriptor.")
      .def(nb::init<int, size_t>(), nb::arg("fd"), nb::kw_only(), nb::arg("message_bytes"))
      .def(
          "ping",
          [](bench::TcpPair& self, const nb::handle& samples_ns, uint32_t rounds, uint64_t timeout_ns) {
            const BufferView samples(samples_ns, PyBUF_WRITABLE);
            const nb::gil_scoped_release unlocked;
            return self.ping(doubles(samples), rounds, timeout_ns);
          },
          nb::arg("samples_ns"), nb::kw_only(), nb::arg("rounds") = 1,
          nb::arg("timeout_ns") = bench::kTimeoutNs)
      .def("pong", &bench::TcpPair::pong, nb::arg("rounds"), nb::kw_only(),
           nb::arg("timeout_ns") = bench::kTimeoutNs, Released())
      .def("produce", &bench::TcpPair::produce, nb::arg("messages"), nb::kw_only(),
           nb::arg("timeout_ns") = bench::kTimeoutNs, Released())
      .def("consume", &bench::TcpPair::consume, nb::arg("messages"), nb::kw_only(),
           nb::arg("timeout_ns") = bench::kTimeoutNs, Released());
}

void bind_resp(nb::module_& m) {
  nb::class_<bench::RespLoad::Result>(m, "RespResult", "The result of a load.")
      .def_ro("done", &bench::RespLoad::Result::done)
      .def_ro("errors", &bench::RespLoad::Result::errors)
      .def_ro("reply_bytes", &bench::RespLoad::Result::reply_bytes)
      .def_ro("elapsed_ns", &bench::RespLoad::Result::elapsed_ns)
      .def_ro("finished", &bench::RespLoad::Result::finished);
  nb::class_<bench::RespLoad>(m, "RespLoad",
                              "Sends one kind of request to a RESP server, on connected sockets (file "
                              "descriptors); keys are numbers of 12 digits.")
      .def(
          "__init__",
          [](bench::RespLoad* self, std::vector<int> fds, const nb::bytes& request,
             std::vector<uint32_t> keys_at, uint64_t keys, bool in_order, uint32_t depth, uint64_t seed) {
            new (self) bench::RespLoad(
                std::move(fds),
                {std::string(request.c_str(), request.size()), std::move(keys_at), keys, in_order}, depth,
                seed);
          },
          nb::arg("fds"), nb::arg("request"), nb::kw_only(), nb::arg("keys_at"), nb::arg("keys"),
          nb::arg("in_order") = false, nb::arg("depth") = 1, nb::arg("seed") = 1)
      .def(
          "run",
          [](bench::RespLoad& self, const nb::handle& samples_ns, uint64_t timeout_ns) {
            const BufferView samples(samples_ns, PyBUF_WRITABLE);
            const nb::gil_scoped_release unlocked;
            return self.run(doubles(samples), timeout_ns);
          },
          nb::arg("samples_ns"), nb::kw_only(), nb::arg("timeout_ns") = bench::kTimeoutNs,
          "Runs one batch per sample: the time until all its replies have come.");
}

void bind_loop_values(nb::module_& m) {
  nb::class_<bench::LoopResult>(m, "LoopResult", "How a measuring loop ended.")
      .def_ro("done", &bench::LoopResult::done)
      .def_ro("elapsed_ns", &bench::LoopResult::elapsed_ns)
      .def_prop_ro("status", [](const bench::LoopResult& r) { return static_cast<int>(r.status); })
      .def_prop_ro("post_error", [](const bench::LoopResult& r) { return static_cast<int>(r.post_error); })
      .def_ro("timed_out", &bench::LoopResult::timed_out)
      .def_ro("corrupted", &bench::LoopResult::corrupted)
      .def_prop_ro("finished", &bench::LoopResult::finished);

  nb::class_<bench::Mailbox>(
      m, "Mailbox", "Registered memory for messages: one slot to send from, the rest to receive into.")
      .def(
          "__init__",
          [](bench::Mailbox* self, uint64_t addr, uint32_t lkey, uint32_t message_bytes, uint32_t receives) {
            new (self) bench::Mailbox{addr, lkey, message_bytes, receives};
          },
          nb::kw_only(), nb::arg("addr"), nb::arg("lkey"), nb::arg("message_bytes"), nb::arg("receives"))
      .def_prop_ro("size_bytes", &bench::Mailbox::size_bytes);

  nb::class_<bench::OneSided>(m, "OneSided", "One READ, WRITE or atomic operation, which a loop repeats.")
      .def(
          "__init__",
          [](bench::OneSided* self, int opcode, uint64_t addr, uint32_t length, uint32_t lkey,
             uint64_t remote_addr, uint32_t rkey) {
            new (self)
                bench::OneSided{static_cast<Opcode>(opcode), Sge{addr, length, lkey}, remote_addr, rkey};
          },
          nb::kw_only(), nb::arg("opcode"), nb::arg("addr"), nb::arg("length"), nb::arg("lkey"),
          nb::arg("remote_addr"), nb::arg("rkey"));
}

void bind_loops(nb::module_& m) {
  m.def(
      "post_receives",
      [](QueuePair& qp, CompletionQueue& cq, const bench::Mailbox& box) {
        return bench::post_receives({qp, cq}, box);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("mailbox"), Released());
  m.def(
      "ping",
      [](QueuePair& qp, CompletionQueue& cq, const bench::Mailbox& box, const nb::handle& samples_ns,
         uint32_t rounds) {
        const BufferView samples(samples_ns, PyBUF_WRITABLE);
        const nb::gil_scoped_release unlocked;
        return bench::ping({qp, cq}, box, doubles(samples), rounds);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("mailbox"), nb::arg("samples_ns"), nb::kw_only(),
      nb::arg("rounds") = 1);
  m.def(
      "pong",
      [](QueuePair& qp, CompletionQueue& cq, const bench::Mailbox& box, uint64_t rounds) {
        return bench::pong({qp, cq}, box, rounds);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("mailbox"), nb::arg("rounds"), Released());
  m.def(
      "send_rate",
      [](QueuePair& qp, CompletionQueue& cq, const bench::Mailbox& box, uint64_t messages, uint32_t depth) {
        return bench::send_rate({qp, cq}, box, messages, depth);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("mailbox"), nb::arg("messages"), nb::kw_only(), nb::arg("depth"),
      Released());
  m.def(
      "receive_rate",
      [](QueuePair& qp, CompletionQueue& cq, const bench::Mailbox& box, uint64_t messages) {
        return bench::receive_rate({qp, cq}, box, messages);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("mailbox"), nb::arg("messages"), Released());
  m.def(
      "one_sided_latency",
      [](QueuePair& qp, CompletionQueue& cq, const bench::OneSided& work, const nb::handle& samples_ns,
         uint32_t rounds) {
        const BufferView samples(samples_ns, PyBUF_WRITABLE);
        const nb::gil_scoped_release unlocked;
        return bench::one_sided_latency({qp, cq}, work, doubles(samples), rounds);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("work"), nb::arg("samples_ns"), nb::kw_only(),
      nb::arg("rounds") = 1);
  m.def(
      "one_sided_rate",
      [](QueuePair& qp, CompletionQueue& cq, const bench::OneSided& work, uint64_t operations, uint32_t depth,
         bool sleeps) {
        return bench::one_sided_rate({.qp = qp, .cq = cq, .sleeps = sleeps}, work, operations, depth);
      },
      nb::arg("qp"), nb::arg("cq"), nb::arg("work"), nb::arg("operations"), nb::kw_only(), nb::arg("depth"),
      nb::arg("sleeps") = false, Released());
}

}  // namespace

void bind_bench(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("bench", "Measuring loops and baselines; all run without the GIL.");
  bind_loop_values(m);
  bind_ring(m);
  bind_tcp(m);
  bind_resp(m);
  bind_loops(m);
}

}  // namespace verbena::bind
