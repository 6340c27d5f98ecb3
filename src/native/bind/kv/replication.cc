// _native.kv: ReplicationSender and ReplicationReceiver, the two ends of replication, for
// verbena.kv.replication.
// Only converts arguments and keeps memory alive; the work is done in kv/replication.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/kv/backlog.h"
#include "bind/transport/transport.h"
#include "kv/replication/receiver.h"
#include "kv/replication/sender.h"
#include "util/clock.h"

namespace verbena::bind {
namespace {

struct ReplicationSenderHandle {
  ~ReplicationSenderHandle() { close(); }
  void close() {
    auto closed = std::move(sender);  // with the GIL: other threads find it empty from now on
    if (!closed) return;
    if (engine->engine.is_inherited()) {
      closed.release();  // leaked: see bind/handle.h
      return;
    }
    const Unlocked unlocked;
    closed.reset();
  }
  kv::ReplicationSender& get() const {
    if (!sender) throw nb::value_error("the sender is closed");
    return *sender;
  }

  EngineHandle* engine = nullptr;
  std::optional<BufferView> position;
  std::unique_ptr<kv::ReplicationSender> sender;
  bool full = true;
  uint64_t lsn = 0, offset = 0;  // where the stream begins
};

// Returns a callback for new receipts, which makes the loop call the Python function with the GIL. Calls that
// come before the loop has done so are merged.
std::function<void()> make_receipt_callback(EngineHandle& engine, nb::object function) {
  auto* kept = new nb::object(std::move(function));
  const std::shared_ptr<nb::object> shared(kept, [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  const auto pending = std::make_shared<std::atomic<bool>>(false);
  return [&engine, shared, pending] {
    if (pending->exchange(true)) return;
    engine.loop->post([&engine, shared, pending] {
      pending->store(false);
      if (engine.callbacks) engine.callbacks->with_gil([&] { (*shared)(); });
    });
  };
}

void make_replication_sender(ReplicationSenderHandle* self, EngineHandle& engine, SessionHandle& session,
                             uint64_t ring_key, uint64_t ring_tag, size_t ring_bytes, bool by_write,
                             nb::object position, size_t max_inline, std::optional<uint64_t> lsn,
                             uint64_t offset, nb::object on_receipt) {
  new (self) ReplicationSenderHandle;
  self->engine = &engine;
  if (!position.is_none()) self->position.emplace(std::move(position), PyBUF_WRITABLE);
  if (self->position && self->position->size() < sizeof(kv::ReplicaPosition))
    throw nb::value_error("the memory for the position is too small");
  if (ring_bytes < kv::kMinRingBytes || ring_bytes > kv::kMaxRingBytes)
    throw nb::value_error("ring_bytes is out of range");
  auto receipt_callback = make_receipt_callback(engine, std::move(on_receipt));
  const kv::ReplicationSenderOptions options{.ring_key = ring_key,
                                             .ring_tag = ring_tag,
                                             .ring_bytes = ring_bytes,
                                             .by_write = by_write,
                                             .position = self->position ? self->position->data() : nullptr,
                                             .max_inline = max_inline};
  const auto held = engine.lock();
  kv::Backlog& backlog = engine.engine->backlog();
  std::unique_ptr<kv::BacklogReader> reader;
  std::unique_ptr<kv::BaseCopy> copy;
  if (lsn) reader = backlog.read_from(*lsn + 1);
  if (reader && reader->offset() != offset) reader.reset();
  if (!reader) copy = std::make_unique<kv::BaseCopy>(*engine.engine, backlog, nullptr);
  self->full = copy != nullptr;
  self->lsn = reader ? *lsn : backlog.position();
  self->offset = reader ? offset : backlog.written_offset();
  self->sender = std::make_unique<kv::ReplicationSender>(
      engine.engine.share(), *engine.loop, session.node.share(), session.session.share(), options,
      std::move(copy), std::move(reader), std::move(receipt_callback));
}

nb::dict sender_counters(ReplicationSenderHandle& self) {
  const kv::ReplicationSenderCounters counters = self.get().counters();
  nb::dict dict;
  dict["sent"] = counters.sent;
  dict["acknowledged"] = counters.acknowledged;
  dict["lsn"] = counters.lsn;
  dict["offset"] = counters.offset;
  dict["durable_offset"] = counters.durable;
  dict["silent_ns"] = now_ns() - counters.receipt_ns;
  dict["writes"] = counters.writes;
  dict["messages"] = counters.messages;
  dict["inlined"] = counters.inlined;
  dict["repeats"] = counters.repeats;
  dict["yielded_ns"] = counters.yielded_ns;
  dict["copying"] = counters.copying;
  dict["fraction"] = counters.fraction;
  dict["ended"] = counters.ended;
  dict["why"] = counters.why;
  return dict;
}

struct ReplicationReceiverHandle {
  ~ReplicationReceiverHandle() { close(); }
  void close() {
    if (receiver.is_inherited()) return;
    const auto held = engine->lock();
    closed = true;
    if (receiver) receiver->close();
  }
  kv::ReplicationReceiver& get() const { return *receiver; }

  EngineHandle* engine = nullptr;
  Owned<kv::ReplicationReceiver> receiver;
  BufferView ring;
  bool closed = false;
};

void make_receiver(ReplicationReceiverHandle* self, EngineHandle& engine, SessionHandle& session,
                   nb::object ring, LogApplierHandle& applier) {
  new (self) ReplicationReceiverHandle{&engine, {}, BufferView(std::move(ring), PyBUF_WRITABLE), false};
  const std::span<std::byte> memory(self->ring.data(), self->ring.size());
  const uint64_t id = session.session->id();
  const auto node = session.node.share();
  const Unlocked unlocked;
  self->receiver =
      Owned(kv::ReplicationReceiver::make(*engine.engine, *engine.loop, node, id, memory, applier.get()));
}

nb::dict receiver_counters(ReplicationReceiverHandle& self) {
  const kv::ReplicationReceiverCounters counters = self.get().counters();
  nb::dict dict;
  dict["lsn"] = counters.lsn;
  dict["offset"] = counters.offset;
  dict["pieces"] = counters.pieces;
  dict["bytes"] = counters.bytes;
  dict["written_bytes"] = counters.written;
  dict["damaged"] = counters.damaged;
  dict["silent_ns"] = counters.received_ns ? now_ns() - counters.received_ns : 0;
  dict["complete"] = counters.complete;
  nb::list lags;
  for (const uint32_t count : counters.lags.buckets()) lags.append(count);
  dict["lags"] = nb::tuple(lags);
  dict["error"] = counters.error;
  return dict;
}

}  // namespace

void bind_kv_replication(nb::module_& m) {
  m.attr("REPLICA_POSITION_BYTES") = sizeof(kv::ReplicaPosition);
  nb::class_<ReplicationSenderHandle>(m, "ReplicationSender",
                                      "Sends a replica the data that it lacks, then the log as it grows.")
      .def("__init__", make_replication_sender, nb::arg("engine"), nb::arg("session"), nb::kw_only(),
           nb::arg("ring_key"), nb::arg("ring_tag"), nb::arg("ring_bytes"), nb::arg("by_write"),
           nb::arg("position").none(), nb::arg("max_inline"), nb::arg("lsn").none(), nb::arg("offset"),
           nb::arg("on_receipt"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           "Continues after `lsn` and `offset` if the backlog reaches back that far; otherwise begins with a "
           "base copy. `position`: memory into which the replica writes its position.")
      .def_ro("full", &ReplicationSenderHandle::full, "Whether it began with a base copy.")
      .def_ro("lsn", &ReplicationSenderHandle::lsn, "The LSN after which the stream begins.")
      .def_ro("offset", &ReplicationSenderHandle::offset)
      .def("counters", sender_counters, nb::sig("def counters(self) -> dict[str, typing.Any]"))
      .def(
          "set_eager", [](ReplicationSenderHandle& self, bool eager) { self.get().set_eager(eager); },
          nb::arg("eager"), "Requests receipts without delay, because a client waits for them (WAIT).")
      .def(
          "stop", [](ReplicationSenderHandle& self, const std::string& why) { self.get().stop(why); },
          nb::arg("why"), "Ends the stream at once, without waiting for the thread: close() must follow.")
      .def("close", &ReplicationSenderHandle::close,
           "Ends the thread. Must not be called from within a command, because it waits for the thread.");
  nb::class_<ReplicationReceiverHandle>(m, "ReplicationReceiver",
                                        "Receives a primary's log over a session and applies it.")
      .def("__init__", make_receiver, nb::arg("engine"), nb::arg("session"), nb::arg("ring"),
           nb::arg("applier"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 5>())
      .def(
          "begin",
          [](ReplicationReceiverHandle& self, bool full, uint64_t offset, uint64_t position_key) {
            const auto held = self.engine->lock();
            if (self.closed) throw nb::value_error("the receiver is closed");
            self.get().begin(full, offset, position_key);
          },
          nb::kw_only(), nb::arg("full"), nb::arg("offset"), nb::arg("position_key"),
          "Starts with the values of the primary's answer. `full`: all present keys are deleted first. "
          "`position_key`: the region into which the position is written; 0: none.")
      .def_prop_ro(
          "ring_tag", [](ReplicationReceiverHandle& self) { return self.get().ring_tag(); },
          "The number that the primary adds to the positions of its pieces.")
      .def("counters", receiver_counters, nb::sig("def counters(self) -> dict[str, typing.Any]"))
      .def("close", &ReplicationReceiverHandle::close,
           "Stops applying; counters() then keep their last values.");
}

}  // namespace verbena::bind
