// _native.kv: Log, Snapshot, Loader and examine(), for verbena.kv.storage.persistence.
// Only converts arguments and takes locks; the work is done in kv/journal.
#include "kv/journal/log.h"

#include <nanobind/stl/string.h>

#include "bind/kv/backlog.h"
#include "kv/journal/recovery.h"
#include "kv/journal/snapshot.h"
#include "util/clock.h"

namespace verbena::bind {
namespace {

kv::Fsync fsync_of(const std::string& name) {
  if (name == "always") return kv::Fsync::always;
  if (name == "everysec") return kv::Fsync::everysec;
  if (name == "no") return kv::Fsync::no;
  throw nb::value_error("fsync must be always, everysec or no");
}

// The log on disk of an engine, which uses it until close().
struct LogHandle {
  LogHandle(EngineHandle& handle, std::string directory, const std::string& fsync, uint64_t next_lsn,
            uint32_t epoch)
      : engine(&handle) {
    const kv::LogOptions options{
        .directory = std::move(directory), .fsync = fsync_of(fsync), .next_lsn = next_lsn, .epoch = epoch};
    const Unlocked unlocked;
    const auto held = handle.engine->lock();
    log = std::make_unique<kv::Log>(options);
    handle.engine->set_log(log.get());
  }
  ~LogHandle() { close(); }
  void close() {
    if (engine->engine.is_inherited()) {
      log.release();  // leaked: see bind/handle.h
      return;
    }
    const Unlocked unlocked;
    const auto held = engine->engine->lock();
    if (engine->engine->log() == log.get()) engine->engine->set_log(nullptr);
    log->close();
  }

  EngineHandle* engine;
  std::unique_ptr<kv::Log> log;
};

nb::dict log_counters(LogHandle& self) {
  const auto held = self.engine->lock();
  const kv::LogCounters counters = self.log->counters();
  nb::dict dict;
  dict["lsn"] = counters.lsn;
  dict["durable_lsn"] = counters.durable_lsn;
  dict["segment_bytes"] = counters.segment_bytes;
  dict["segment_first_lsn"] = counters.segment_first_lsn;
  dict["written_bytes"] = counters.written_bytes;
  dict["syncs"] = counters.syncs;
  dict["delayed_syncs"] = counters.delayed_syncs;
  dict["failures"] = counters.failures;
  dict["longest_sync_ns"] = counters.longest_sync_ns;
  dict["pending_bytes"] = counters.pending_bytes;
  dict["syncing"] = static_cast<uint64_t>(counters.syncing);
  dict["needs_snapshot"] = static_cast<uint64_t>(counters.needs_snapshot);
  return dict;
}

struct SnapshotHandle {
  SnapshotHandle(LogHandle& handle, const std::string& path, uint32_t epoch) : log(&handle) {
    const auto held = log->engine->lock();
    snapshot = std::make_unique<kv::Snapshot>(*log->engine->engine, *log->log, path, epoch);
    log->engine->engine->background = snapshot.get();
  }
  ~SnapshotHandle() { close(); }
  void close() {
    if (log->engine->engine.is_inherited()) {
      snapshot.release();
      return;
    }
    const auto held = log->engine->lock();
    const Unlocked unlocked;
    snapshot.reset();
  }
  kv::Snapshot& get() const {
    if (!snapshot) throw nb::value_error("the snapshot is closed");
    return *snapshot;
  }

  LogHandle* log;
  std::unique_ptr<kv::Snapshot> snapshot;
};

// Runs within a command, so with the GIL, which is needed to read the values that Python holds.
bool finish(SnapshotHandle& self) {
  const auto held = self.log->engine->lock();
  return self.get().finish();
}

std::string state(SnapshotHandle& self) {
  constexpr const char* kNames[] = {"scanning", "writing", "done", "failed"};
  return kNames[static_cast<size_t>(self.get().state())];
}

nb::dict snapshot_counters(SnapshotHandle& self) {
  const kv::Snapshot& snapshot = self.get();
  nb::dict dict;
  dict["first_lsn"] = snapshot.first_lsn();
  dict["last_lsn"] = snapshot.last_lsn();
  dict["records"] = snapshot.records();
  dict["bytes"] = snapshot.bytes();
  dict["slices"] = snapshot.slices();
  dict["longest_slice_ns"] = snapshot.longest_slice_ns();
  return dict;
}

struct LoaderHandle {
  LoaderHandle(EngineHandle& handle, nb::object function) : engine(&handle), apply(std::move(function)) {
    const auto held = handle.lock();
    log_client = std::make_unique<LogClient>(handle.engine->next_client());
    handle.engine->add(*log_client);
    --handle.engine->counters.connections;
    loader = std::make_unique<kv::Loader>(
        *handle.engine, [this](uint32_t database, kv::Arguments arguments) { run(database, arguments); });
  }
  ~LoaderHandle() { close(); }
  void close() {
    if (engine->engine.is_inherited()) {
      loader.release();
      log_client.release();
      return;
    }
    const auto held = engine->lock();
    if (!loader) return;
    loader.reset();
    // Python got no opened() for this client, so it must get no closed(); and the handlers may be running on
    // the loop's thread, with the GIL of that thread.
    kv::PythonHandler* const handler = engine->engine->handler();
    engine->engine->set_handler(nullptr);
    engine->engine->remove(*log_client);
    engine->engine->set_handler(handler);
    log_client.reset();
  }
  kv::Loader& get() const {
    if (!loader) throw nb::value_error("the loader is closed");
    return *loader;
  }
  void run(uint32_t database, kv::Arguments arguments) {
    unlocked->enter();
    struct Leave {
      Unlocked* outside;
      ~Leave() { outside->leave(); }
    } const leave{unlocked};
    try {
      nb::list argv;
      for (const std::string_view argument : arguments) argv.append(to_bytes(argument));
      apply(database, argv);
    } catch (nb::python_error& error) {
      failure = std::make_exception_ptr(std::move(error));
      throw Stopped();
    }
  }
  struct Stopped {};

  EngineHandle* engine;
  nb::object apply;
  std::unique_ptr<LogClient> log_client;
  std::unique_ptr<kv::Loader> loader;
  Unlocked* unlocked = nullptr;
  std::exception_ptr failure;
};

bool step(LoaderHandle& self, double seconds) {
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  bool more = false;
  {
    Unlocked unlocked;
    const auto held = self.engine->engine->lock();
    self.unlocked = &unlocked;
    try {
      more = self.get().step(deadline);
    } catch (const LoaderHandle::Stopped&) {
    }
  }
  if (self.failure) std::rethrow_exception(std::exchange(self.failure, nullptr));
  return more;
}

void begin(LoaderHandle& self, const std::string& phase, const std::string& path, uint64_t bytes,
           uint64_t last_lsn) {
  const auto held = self.engine->lock();
  const auto kind = phase == "survey"     ? kv::Loader::Phase::survey
                    : phase == "snapshot" ? kv::Loader::Phase::snapshot
                                          : kv::Loader::Phase::log;
  self.get().begin(kind, path, bytes, last_lsn);
}

nb::dict examine(const std::string& path, bool snapshot) {
  kv::FileReport report;
  {
    const Unlocked unlocked;
    const kv::MappedFile file(path);
    report = kv::examine(file.bytes(), snapshot ? kv::LogReader::Kind::snapshot : kv::LogReader::Kind::log);
  }
  nb::dict dict;
  dict["file_bytes"] = report.file_bytes;
  dict["whole_bytes"] = report.whole_bytes;
  dict["records"] = report.records;
  dict["first_lsn"] = report.first_lsn;
  dict["next_lsn"] = report.next_lsn;
  dict["last_lsn"] = report.last_lsn;
  dict["durable_lsn"] = report.durable_lsn;
  dict["version"] = report.version;
  dict["epoch"] = report.epoch;
  dict["created_ms"] = report.created_ms;
  dict["readable"] = report.readable;
  dict["fault"] = report.fault;
  dict["fault_offset"] = report.fault_offset;
  dict["fault_lsn"] = report.fault_lsn;
  dict["records_behind"] = report.records_behind;
  dict["durable_behind"] = report.durable_behind;
  return dict;
}

}  // namespace

void bind_kv_log(nb::module_& m) {
  m.def(
      "key_slot", [](const nb::bytes& key) { return kv::key_slot(view_of(key)); }, nb::arg("key"),
      "Returns the slot of a key, or of its {hash tag}.");
  m.def("examine", examine, nb::arg("path"), nb::kw_only(), nb::arg("snapshot") = false,
        nb::sig("def examine(path: str, *, snapshot: bool = False) -> dict[str, typing.Any]"),
        "Reads every record of a segment or snapshot. Reports which are complete and the first fault.");
  nb::class_<LogHandle>(m, "Log",
                        "The log of an engine on disk. It receives the engine's changes until it is closed.")
      .def(nb::init<EngineHandle&, std::string, const std::string&, uint64_t, uint32_t>(), nb::arg("engine"),
           nb::kw_only(), nb::arg("directory"), nb::arg("fsync"), nb::arg("next_lsn"), nb::arg("epoch"),
           nb::keep_alive<1, 2>())
      .def("close", &LogHandle::close, "Writes everything to the disk, then closes the log.")
      .def(
          "flush",
          [](LogHandle& self) {
            const auto held = self.engine->lock();
            const Unlocked unlocked;
            return self.log->flush();
          },
          "Writes all changes to the disk. False: it failed.")
      .def(
          "clear_sync_failure",
          [](LogHandle& self) {
            const auto held = self.engine->lock();
            self.log->clear_sync_failure();
          },
          "Clears an earlier fsync failure, because a complete snapshot is on the disk.")
      .def(
          "set_fsync",
          [](LogHandle& self, const std::string& policy) {
            const auto held = self.engine->lock();
            self.log->set_fsync(fsync_of(policy));
          },
          nb::arg("fsync"))
      .def_prop_ro("write_error",
                   [](LogHandle& self) {
                     const auto held = self.engine->lock();
                     return self.log->write_error;
                   })
      .def("counters", log_counters, nb::sig("def counters(self) -> dict[str, int]"));
  nb::class_<SnapshotHandle>(m, "Snapshot", "A snapshot of all keys, written between commands.")
      .def(nb::init<LogHandle&, const std::string&, uint32_t>(), nb::arg("log"), nb::kw_only(),
           nb::arg("path"), nb::arg("epoch"), nb::keep_alive<1, 2>())
      .def("finish", finish, "Writes the rest of the snapshot at once. False: it failed.")
      .def("close", &SnapshotHandle::close, "Discards the snapshot if it is not complete.")
      .def_prop_ro("state", state, "The state: scanning, writing, done or failed.")
      .def_prop_ro("error", [](SnapshotHandle& self) { return self.get().error(); })
      .def("counters", snapshot_counters, nb::sig("def counters(self) -> dict[str, int]"));
  nb::class_<LoaderHandle>(m, "Loader",
                           "Applies snapshots and log segments to an engine whose `loading` is set.")
      .def(nb::init<EngineHandle&, nb::object>(), nb::arg("engine"), nb::arg("apply"), nb::keep_alive<1, 2>(),
           "Calls `apply` with (database, arguments) for commands that are not native.")
      .def_prop_ro(
          "client", [](LoaderHandle& self) { return ClientHandle{self.engine, self.log_client->id}; },
          "The client as which the records are applied. Its replies are discarded.")
      .def("begin", begin, nb::arg("phase"), nb::arg("path"), nb::arg("whole_bytes"), nb::arg("last_lsn"),
           "`phase`: survey, snapshot or log.")
      .def("step", step, nb::arg("seconds"),
           "Applies records for the given time. False: the file is finished.")
      .def("close", &LoaderHandle::close)
      .def_prop_ro("fraction", [](LoaderHandle& self) { return self.get().fraction(); })
      .def_prop_ro("applied", [](LoaderHandle& self) { return self.get().applied(); })
      .def_prop_ro("skipped", [](LoaderHandle& self) { return self.get().skipped(); })
      .def_prop_ro("failed", [](LoaderHandle& self) { return self.get().failed(); })
      .def_prop_ro("first_failure", [](LoaderHandle& self) { return self.get().first_failure(); });
}

}  // namespace verbena::bind
