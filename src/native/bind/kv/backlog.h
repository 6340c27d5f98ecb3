// The Python handles of log appliers and base copies, shared by the bindings of the backlog, the log, base
// copies and replication.
// Part of bind: needs the GIL unless stated otherwise; nothing outside bind may include it.
#pragma once

#include "bind/kv/store.h"
#include "kv/journal/base_copy.h"
#include "kv/journal/log_applier.h"
#include "kv/migration/copy_sender.h"

namespace verbena::bind {

// A client without a connection, which runs the commands of a log. Its replies are discarded.
class LogClient : public kv::Client {
 public:
  using Client::Client;
  void queue_write() override {
    out.clear();
    write_scheduled = false;
  }
};

std::unique_ptr<kv::SlotSet> slots_of(nb::handle slots);  // None: null, which means all slots

struct LogApplierHandle {
  LogApplierHandle(EngineHandle& handle, nb::object function, uint64_t lsn, nb::handle slots);
  ~LogApplierHandle() { close(); }
  void close();
  kv::LogApplier& get() const {
    if (!applier) throw nb::value_error("the applier is closed");
    return *applier;
  }
  bool ask(uint32_t database, kv::Arguments arguments);

  EngineHandle* engine;
  nb::object run;
  std::unique_ptr<LogClient> log_client;
  std::unique_ptr<kv::LogApplier> applier;
};

struct BaseCopyHandle {
  BaseCopyHandle(EngineHandle& handle, nb::handle slots) : engine(&handle) {
    auto wanted = slots_of(slots);
    const auto held = handle.lock();
    copy = std::make_unique<kv::BaseCopy>(*handle.engine, handle.engine->backlog(), std::move(wanted));
    first_lsn = handle.engine->backlog().position() + 1;
  }
  ~BaseCopyHandle() {
    if (engine->engine.is_inherited()) copy.release();  // leaked: see bind/handle.h
  }
  kv::BaseCopy& get() const {
    if (!copy) throw nb::value_error("the copy is closed");
    return *copy;
  }
  // Fills the piece to its end. True: the copy has ended. With `hold`, long values are not copied: the hold
  // keeps them in place. Must be called without the GIL.
  bool fill(kv::CopyPiece& piece, kv::Keyspace::Hold* hold);

  EngineHandle* engine;
  std::unique_ptr<kv::BaseCopy> copy;
  uint64_t first_lsn = 0;
};

}  // namespace verbena::bind
