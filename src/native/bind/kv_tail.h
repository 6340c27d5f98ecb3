// Who applies another node's log to an engine, as Python holds it.
#pragma once

#include "bind/kv.h"
#include "kv/applier.h"

namespace verbena::bind {

// A client that nobody hears: commands from a log are its.
class Ghost : public kv::Client {
 public:
  using Client::Client;
  void wake() override {
    out.clear();
    waking = false;
  }
};

std::unique_ptr<kv::SlotSet> slots_of(nb::handle slots);  // None: no set

struct ApplierHandle {
  ApplierHandle(EngineHandle& handle, nb::object function, uint64_t lsn, nb::handle slots);
  ~ApplierHandle() { close(); }
  void close();
  kv::Applier& get() const {
    if (!applier) throw nb::value_error("the applier is closed");
    return *applier;
  }
  bool ask(uint32_t database, kv::Words words);

  EngineHandle* engine;
  nb::object run;
  std::unique_ptr<Ghost> ghost;
  std::unique_ptr<kv::Applier> applier;
};

}  // namespace verbena::bind
