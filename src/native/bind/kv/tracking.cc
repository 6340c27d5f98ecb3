// _native.kv.Engine: CLIENT TRACKING for Python, and the delivery of invalidations to the Python handlers.
#include "bind/kv/store.h"

namespace verbena::bind {

void PythonCallbacks::invalidated(const std::vector<kv::Tracking::Message>& messages) {
  with_gil_or_end("invalidating cached keys", [&] {
    nb::list list;
    for (const kv::Tracking::Message& message : messages) {
      nb::list clients;
      for (const uint64_t client : message.clients) clients.append(client);
      nb::object keys = nb::none();
      if (message.keys) {
        nb::list names;
        for (const std::string& key : *message.keys) names.append(to_bytes(key));
        keys = names;
      }
      list.append(nb::make_tuple(clients, keys));
    }
    object_.attr("invalidated")(list);
  });
}

void bind_kv_tracking(nb::class_<EngineHandle>& engine) {
  engine
      .def(
          "track",
          [](EngineHandle& self, uint64_t client, nb::handle prefixes, bool broadcasts, bool skips_own) {
            const auto held = self.lock();
            self.engine->tracking.start(client, {broadcasts, skips_own}, arguments_of(prefixes));
          },
          nb::arg("client"), nb::arg("prefixes"), nb::kw_only(), nb::arg("broadcasts"), nb::arg("skips_own"),
          nb::sig("def track(self, client: int, prefixes: collections.abc.Iterable[bytes], *, broadcasts: "
                  "bool, skips_own: bool) -> None"),
          "Sends the client invalidations of keys that it has read, or in broadcast mode of all keys with "
          "these prefixes.")
      .def(
          "untrack",
          [](EngineHandle& self, uint64_t client) {
            const auto held = self.lock();
            self.engine->tracking.stop(client);
          },
          nb::arg("client"))
      .def(
          "remember",
          [](EngineHandle& self, uint64_t client, nb::handle keys) {
            const auto held = self.lock();
            for (const std::string_view key : arguments_of(keys)) self.engine->tracking.remember(client, key);
          },
          nb::arg("client"), nb::arg("keys"),
          nb::sig("def remember(self, client: int, keys: collections.abc.Iterable[bytes]) -> None"),
          "Notes that the client has read these keys, if it tracks keys.")
      .def(
          "invalidate_all",
          [](EngineHandle& self) {
            const auto held = self.lock();
            self.engine->tracking.all_changed();
          },
          "Sends all tracking clients an invalidation of every key.")
      .def(
          "limit_tracking",
          [](EngineHandle& self, size_t keys) {
            const auto held = self.lock();
            self.engine->tracking.limit(keys);
          },
          nb::arg("keys"), "Sets the maximum number of tracked keys; 0: no limit.")
      .def_prop_rw(
          "current_client",
          [](EngineHandle& self) {
            const auto held = self.lock();
            return self.engine->keyspace.current_client;
          },
          [](EngineHandle& self, uint64_t client) {
            const auto held = self.lock();
            self.engine->keyspace.current_client = client;
          },
          "The client whose command changes keys at present; 0: none.");
}

}  // namespace verbena::bind
