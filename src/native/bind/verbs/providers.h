// Python's handles on providers and contexts.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include "bind/handle.h"
#include "bind/unlocked.h"
#include "verbs/provider.h"

namespace verbena::bind {

struct ProviderHandle {
  Owned<Provider> provider;
};

struct ContextHandle {
  explicit ContextHandle(std::shared_ptr<Context> object) : context(std::move(object), "context") {}
  ~ContextHandle() { close(); }

  void close() {
    if (!context.start_close()) return;
    const Unlocked unlocked;
    context.core()->close();
  }

  Handle<Context> context;
};

}  // namespace verbena::bind
