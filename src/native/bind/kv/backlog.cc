// _native.kv: BacklogReader, BaseCopy and LogApplier, which replication and slot moves in Python use.
// Only converts arguments and takes locks; the work is done in kv/journal.
#include "bind/kv/backlog.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/buffer.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::bind {

std::unique_ptr<kv::SlotSet> slots_of(nb::handle slots) {
  if (slots.is_none()) return nullptr;
  auto set = std::make_unique<kv::SlotSet>();
  for (const nb::handle slot : nb::borrow<nb::iterable>(slots)) {
    const auto number = nb::cast<uint32_t>(slot);
    if (number >= kv::kSlotCount) throw nb::value_error("a slot is a number from 0 to 16383");
    set->set(number);
  }
  return set;
}

LogApplierHandle::LogApplierHandle(EngineHandle& handle, nb::object function, uint64_t lsn, nb::handle slots)
    : engine(&handle), run(std::move(function)) {
  auto wanted = slots_of(slots);
  const auto held = handle.lock();
  log_client = std::make_unique<LogClient>(handle.engine->next_client());
  handle.engine->add(*log_client);
  --handle.engine->counters.connections;
  applier = std::make_unique<kv::LogApplier>(
      *handle.engine, [this](uint32_t database, kv::Arguments arguments) { return ask(database, arguments); },
      lsn, std::move(wanted));
}

void LogApplierHandle::close() {
  if (engine->engine.is_inherited()) {
    applier.release();  // leaked: see bind/handle.h
    log_client.release();
    return;
  }
  const auto held = engine->lock();
  if (!applier) return;
  applier.reset();
  kv::PythonHandler* const handler = engine->engine->handler();
  engine->engine->set_handler(nullptr);  // Python got no opened() for this client, so it must get no closed()
  engine->engine->remove(*log_client);
  engine->engine->set_handler(handler);
  log_client.reset();
}

bool LogApplierHandle::ask(uint32_t database, kv::Arguments arguments) {
  std::optional<bool> done;
  if (!engine->callbacks) return false;
  engine->callbacks->with_gil([&] {
    nb::list argv;
    for (const std::string_view argument : arguments) argv.append(to_bytes(argument));
    done = nb::cast<bool>(run(log_client->id, database, argv));
  });
  // Without the effect this node would differ from the other one.
  if (!done) throw Error("log_failed", "apply the log of another node", "an effect failed, see the log");
  return *done;
}

bool BaseCopyHandle::fill(kv::CopyPiece& piece, kv::Keyspace::Hold* hold) {
  constexpr size_t kSlice = 256u << 10;  // copied per turn of the lock, so that commands run in between
  bool last = false;
  for (bool first = true; piece.used < piece.to.size() && !last; first = false) {
    const auto held = engine->engine->lock();
    if (first) piece.held_from = engine->engine->keyspace.retired_blocks();
    if (hold && hold->from == kv::Keyspace::Hold::kNothing) hold->from = piece.held_from;
    get().fill(piece, kSlice, hold != nullptr);
    last = copy->is_complete();
    if (!copy->error().empty()) throw nb::value_error(copy->error().c_str());
  }
  return last;
}

namespace {

// One thread at a time may use a reader. It is a Python thread, which releases the GIL only while it copies
// or waits.
struct BacklogReaderHandle {
  BacklogReaderHandle(EngineHandle* handle, std::unique_ptr<kv::BacklogReader> taken)
      : engine(handle), reader(std::move(taken)) {}
  ~BacklogReaderHandle() {
    if (engine->engine.is_inherited()) reader.release();
  }
  kv::BacklogReader& get() const {
    if (!reader) throw nb::value_error("the reader is closed");
    return *reader;
  }
  EngineHandle* engine;
  std::unique_ptr<kv::BacklogReader> reader;
};

[[noreturn]] void raise_lost() {
  throw nb::value_error("the log from there on is not kept: begin with a base copy");
}

BacklogReaderHandle* read_backlog(EngineHandle& self, nb::handle slots, std::optional<uint64_t> from_lsn) {
  auto wanted = slots_of(slots);
  const auto held = self.lock();
  kv::Backlog& backlog = self.engine->backlog();
  auto reader = backlog.read_from(from_lsn.value_or(backlog.position() + 1), std::move(wanted));
  if (!reader) raise_lost();
  return new BacklogReaderHandle(&self, std::move(reader));
}

nb::tuple read_backlog_records(BacklogReaderHandle& self, size_t max_bytes) {
  std::string out;
  bool there;
  {
    const Unlocked unlocked;
    there = self.get().read(out, max_bytes);
  }
  if (!there) raise_lost();
  return nb::make_tuple(to_bytes(out), self.get().next_lsn());
}

nb::bytes read_copy(BaseCopyHandle& self, size_t max_bytes) {
  std::string out;
  out.reserve(max_bytes + (max_bytes >> 2));
  // The lock is released between two reads, so that other threads get it when each read finds little.
  for (bool more = true; more && out.size() < max_bytes;) {
    const auto held = self.engine->lock();
    more = self.get().read(out, max_bytes - out.size());
    if (!self.get().error().empty()) throw nb::value_error(self.get().error().c_str());
  }
  return to_bytes(out);
}

// Bytes that are applied per turn of the lock, so that commands run in between. A record that is cut here
// costs a copy.
constexpr size_t kApplied = 1u << 20;

size_t fill_piece(BaseCopyHandle& self, const nb::handle& into) {
  const BufferView view(into, PyBUF_WRITABLE);
  const Unlocked unlocked;
  kv::CopyPiece piece{.to = {reinterpret_cast<char*>(view.data()), view.size()}};
  self.fill(piece, nullptr);
  return piece.used;
}

uint64_t apply(LogApplierHandle& self, const nb::handle& records, bool checked) {
  const BufferView view(records, PyBUF_SIMPLE);
  std::string_view left(reinterpret_cast<const char*>(view.data()), view.size());
  const Unlocked unlocked;
  while (true) {
    const auto held = self.engine->engine->lock();
    if (!self.applier) throw Error("closed", "apply the log of another node", "the applier is closed");
    const uint64_t lsn = self.applier->apply(left.substr(0, kApplied), checked);
    left.remove_prefix(std::min(left.size(), kApplied));
    if (left.empty()) return lsn;
  }
}

template <auto Member>
auto applier_figure() {
  return [](LogApplierHandle& self) {
    const auto held = self.engine->lock();
    return (self.get().*Member)();
  };
}

nb::dict backlog_counters(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  dict["has_backlog"] = static_cast<uint64_t>(self.engine->has_backlog());
  if (!self.engine->has_backlog()) {
    dict["offset"] = dict["written_offset"] = self.engine->first_offset();
    return dict;
  }
  const kv::Backlog& backlog = self.engine->backlog();
  const kv::Backlog::Range kept = backlog.kept();
  dict["lsn"] = backlog.visible_lsn();
  dict["offset"] = backlog.visible_offset();
  dict["written_offset"] = backlog.written_offset();
  dict["first_lsn"] = kept.first_lsn;
  dict["first_offset"] = kept.first_offset;
  dict["bytes"] = kept.bytes;
  dict["epoch"] = backlog.epoch();
  return dict;
}

}  // namespace

void bind_kv_backlog(nb::module_& m, nb::class_<EngineHandle>& engine) {
  nb::class_<BacklogReaderHandle>(
      m, "BacklogReader", "Reads the records of the log as they are appended. Used by one thread at a time.")
      .def("read", read_backlog_records, nb::arg("max_bytes") = 1u << 20,
           nb::sig("def read(self, max_bytes: int = 1048576) -> tuple[bytes, int]"),
           "Returns complete records, at least one and as many as fit, and the LSN after them. ValueError: "
           "the backlog no longer has them, because this reader was too slow.")
      .def(
          "lag", [](BacklogReaderHandle& self) { return self.get().lag(); },
          "The number of records that have not been read yet.")
      .def_prop_ro("lag_bytes", [](BacklogReaderHandle& self) { return self.get().lag_bytes(); })
      .def_prop_ro("next_lsn", [](BacklogReaderHandle& self) { return self.get().next_lsn(); })
      .def_prop_ro("offset", [](BacklogReaderHandle& self) { return self.get().offset(); })
      .def(
          "wait",
          [](BacklogReaderHandle& self, double seconds) {
            kv::BacklogReader& reader = self.get();
            const Unlocked unlocked;
            kv::Backlog& backlog = reader.backlog();
            backlog.wait_for_records(reader.offset(), now_ns() + static_cast<uint64_t>(seconds * 1e9),
                                     backlog.wakes());
            return reader.lag_bytes() > 0;
          },
          nb::arg("seconds"),
          "Waits until records can be read, at most for the given time. Returns whether there are any.")
      .def("close", [](BacklogReaderHandle& self) { self.reader.reset(); });
  nb::class_<BaseCopyHandle>(
      m, "BaseCopy",
      "A copy of all keys, or of those of some slots, as records that a LogApplier applies in order.")
      .def("read", read_copy, nb::arg("max_bytes") = 1u << 20,
           "Returns about `max_bytes` of the next records: values, and changes that were logged meanwhile. "
           "Empty: "
           "the copy is complete. Must not be called from within a command. ValueError: the copy has failed.")
      .def("fill", fill_piece, nb::arg("into"),
           "Writes the next records into a buffer and returns their length. A record may continue in the "
           "next buffer; a long value is not cut unless it begins the buffer.")
      .def_prop_ro("complete",
                   [](BaseCopyHandle& self) {
                     const auto held = self.engine->lock();
                     return self.get().is_complete();
                   })
      .def_prop_ro("values",
                   [](BaseCopyHandle& self) {
                     const auto held = self.engine->lock();
                     return self.get().values();
                   })
      .def_prop_ro("fraction",
                   [](BaseCopyHandle& self) {
                     const auto held = self.engine->lock();
                     return self.get().fraction();
                   })
      .def_ro("first_lsn", &BaseCopyHandle::first_lsn,
              "The LSN of the first record that the copied values may already include.")
      .def(
          "take_reader",
          [](BaseCopyHandle& self) {
            const auto held = self.engine->lock();
            auto reader = self.get().is_complete() ? self.get().take_reader() : nullptr;
            if (!reader) throw nb::value_error("the copy is not complete, or its reader has been taken");
            return new BacklogReaderHandle(self.engine, std::move(reader));
          },
          nb::keep_alive<0, 1>(),
          "Returns the reader of the records after a complete copy; none between them is missing.")
      .def("close", [](BaseCopyHandle& self) {
        const auto held = self.engine->lock();
        self.copy.reset();
      });
  nb::class_<LogApplierHandle>(m, "LogApplier",
                               "Applies records of a base copy or of a backlog reader of another engine.")
      .def(nb::init<EngineHandle&, nb::object, uint64_t, nb::handle>(), nb::arg("engine"), nb::arg("run"),
           nb::kw_only(), nb::arg("lsn") = 0, nb::arg("slots").none() = nb::none(), nb::keep_alive<1, 2>(),
           "Calls `run` with (client, database, arguments) for commands that are not native; it returns "
           "whether the command succeeded. `lsn`: the last record of the source that this engine has.")
      .def("apply", apply, nb::arg("records"), nb::kw_only(), nb::arg("checked") = false,
           "Applies a piece of the stream, skips records that have been applied, and returns the last LSN "
           "that this engine has. `checked`: the caller has verified a checksum of the whole piece. "
           "LogError: the piece is damaged.")
      .def("close", &LogApplierHandle::close)
      .def_prop_ro("lsn", applier_figure<&kv::LogApplier::lsn>())
      .def_prop_ro("offset", applier_figure<&kv::LogApplier::offset>())
      .def_prop_ro("epoch", applier_figure<&kv::LogApplier::epoch>())
      .def_prop_ro("complete", applier_figure<&kv::LogApplier::is_complete>(),
                   "Whether the end of a base copy has been applied.")
      .def_prop_ro("idle", applier_figure<&kv::LogApplier::is_idle>(), "Whether no command is incomplete.")
      .def_prop_ro("applied", applier_figure<&kv::LogApplier::applied>())
      .def_prop_ro("skipped", applier_figure<&kv::LogApplier::skipped>())
      .def_prop_ro("values", applier_figure<&kv::LogApplier::values>())
      .def_prop_ro("failed", applier_figure<&kv::LogApplier::failed>())
      .def_prop_ro("first_failure", [](LogApplierHandle& self) {
        const auto held = self.engine->lock();
        return std::string(self.get().first_failure());
      });
  engine
      .def("read_backlog", read_backlog, nb::arg("slots").none() = nb::none(),
           nb::arg("from_lsn").none() = nb::none(), nb::keep_alive<0, 1>(), nb::rv_policy::take_ownership,
           nb::sig("def read_backlog(self, slots: collections.abc.Iterable[int] | None = None, from_lsn: int "
                   "| None = "
                   "None) -> BacklogReader"),
           "Returns a reader of the log from an LSN, or from now. `slots`: only records of these slots and "
           "records without a key. ValueError: the backlog does not reach back to that LSN.")
      .def(
          "base_copy", [](EngineHandle& self, nb::handle slots) { return new BaseCopyHandle(self, slots); },
          nb::arg("slots").none() = nb::none(), nb::keep_alive<0, 1>(), nb::rv_policy::take_ownership,
          nb::sig("def base_copy(self, slots: collections.abc.Iterable[int] | None = None) -> BaseCopy"),
          "Begins a copy of all keys, or of those of some slots; it continues between commands.")
      .def(
          "set_backlog_limits",
          [](EngineHandle& self, size_t keep_bytes, size_t max_bytes) {
            const auto held = self.lock();
            self.engine->backlog().set_limits(keep_bytes, max_bytes);
          },
          nb::kw_only(), nb::arg("keep_bytes"), nb::arg("max_bytes"),
          "Sets how many bytes of the log stay in memory: `keep_bytes` for replicas that reconnect, "
          "`max_bytes` for readers that are behind.")
      .def(
          "restart_log_at",
          [](EngineHandle& self, uint64_t offset) {
            const auto held = self.lock();
            self.engine->restart_at(offset);
          },
          nb::arg("offset"),
          "Continues the history of another node at this offset. Readers of the former history must start "
          "again.")
      .def("backlog_counters", backlog_counters, nb::sig("def backlog_counters(self) -> dict[str, int]"));
}

}  // namespace verbena::bind
