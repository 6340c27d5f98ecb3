// _native.kv.native_commands(): the table of native commands, from which Python builds its rows. Python
// has no other copy of these facts. And the counters of _native.kv.Engine, of each command and of all.
#include "kv/engine/commands.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/kv/store.h"

namespace verbena::bind {

namespace {

nb::dict counters(EngineHandle& self) {
  const auto held = self.lock();
  const kv::Engine& engine = *self.engine;
  const kv::KeyspaceCounters& keys = engine.keyspace.counters;
  const kv::EngineCounters& all = engine.counters;
  nb::dict dict;
  dict["commands"] = all.commands;
  dict["python_commands"] = all.program_commands;
  dict["connections"] = all.connections;
  dict["rejected_connections"] = all.rejected_connections;
  dict["http_requests"] = all.http_requests;
  dict["clients"] = engine.clients().size();
  dict["tcp_clients"] = self.loop->clients(kv::SocketKind::tcp);
  dict["tls_clients"] = self.loop->clients(kv::SocketKind::tls);
  dict["unix_clients"] = self.loop->clients(kv::SocketKind::unix_domain);
  dict["errors"] = all.errors;
  dict["input_disconnections"] = all.input_disconnections;
  dict["output_disconnections"] = all.output_disconnections;
  dict["bytes_in"] = all.bytes_in;
  dict["bytes_out"] = all.bytes_out;
  dict["recent_input_bytes"] = all.input_bytes.value();
  dict["recent_output_bytes"] = all.output_bytes.value();
  dict["hits"] = keys.hits;
  dict["misses"] = keys.misses;
  dict["expired"] = keys.expired;
  dict["evicted"] = keys.evicted;
  dict["dirty"] = keys.dirty;
  dict["tracked_keys"] = engine.tracking.keys();
  dict["tracked_items"] = engine.tracking.items();
  dict["tracked_prefixes"] = engine.tracking.prefixes();
  dict["longest_tick_ns"] = all.longest_tick_ns;
  dict["used_bytes"] = self.engine->keyspace.used_bytes();
  dict["object_bytes"] = self.engine->keyspace.object_bytes();
  dict["retired_blocks"] = self.engine->keyspace.retired();
  const LazyFree none, &lazy_free = self.callbacks ? self.callbacks->lazy_free() : none;
  dict["lazy_free_values"] = lazy_free.values();
  dict["lazy_free_elements"] = lazy_free.waiting();
  dict["lazy_freed_values"] = lazy_free.freed();
  dict["lazy_freed_elements"] = lazy_free.freed_elements();
  dict["reads"] = all.reads;
  dict["writes"] = all.writes;
  dict["chunk_bytes"] = self.engine->keyspace.arena().chunk_bytes();
  return dict;
}

nb::dict command_counters(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const kv::NativeCommand& command : self.engine->commands.all()) {
    dict[std::string(command.name).c_str()] =
        nb::make_tuple(command.calls, command.ns, command.rejected, command.failed,
                       std::vector<uint64_t>(command.buckets.begin(), command.buckets.end()));
  }
  return dict;
}

nb::dict error_counters(EngineHandle& self) {
  const auto held = self.lock();
  nb::dict dict;
  for (const auto& [code, count] : self.engine->errors) dict[nb::str(code.data(), code.size())] = count;
  return dict;
}

void reset_counters(EngineHandle& self) {
  const auto held = self.lock();
  self.engine->counters = {};
  self.engine->keyspace.counters = {.dirty = self.engine->keyspace.counters.dirty};
  for (kv::NativeCommand& command : self.engine->commands.all()) {
    command.calls = command.ns = command.rejected = command.failed = 0;
    command.buckets = {};
  }
  self.engine->errors.clear();
}

nb::list take_slow(EngineHandle& self) {
  const auto held = self.lock();
  nb::list list;
  for (const kv::Engine::Slow& slow : self.engine->take_slow()) {
    nb::list arguments;
    for (const std::string& argument : slow.arguments) arguments.append(to_bytes(argument));
    list.append(nb::make_tuple(slow.client, slow.ns, slow.unix_ms, arguments));
  }
  return list;
}

}  // namespace

void bind_kv_commands(nb::module_& m, nb::class_<EngineHandle>& engine) {
  using kv::NativeCommand;
  nb::class_<NativeCommand>(m, "NativeCommand", "One command that the engine runs without Python.")
      .def_ro("name", &NativeCommand::name)
      .def_ro("arity", &NativeCommand::arity, "Counts the name; negative: the minimum.")
      .def_ro("flags", &NativeCommand::flags, "Redis's names, separated by spaces.")
      .def_prop_ro(
          "keys",
          [](const NativeCommand& self) {
            return std::tuple(self.keys.first, self.keys.last, self.keys.step);
          },
          "First, last, step; (0, 0, 0): the command has no keys.")
      .def_ro("key_flags", &NativeCommand::key_flags, "What the command does with each key.")
      .def_ro("group", &NativeCommand::group)
      .def_ro("since", &NativeCommand::since)
      .def_ro("summary", &NativeCommand::summary);
  m.def("native_commands", kv::native_commands, "Returns the rows of all native commands.");
  engine.def("counters", counters, nb::sig("def counters(self) -> dict[str, int]"))
      .def("command_counters", command_counters,
           nb::sig("def command_counters(self) -> dict[str, tuple[int, int, int, int, list[int]]]"),
           "Returns (calls, nanoseconds, rejected, failed, calls by bucket of duration) of each native "
           "command.")
      .def("error_counters", error_counters, nb::sig("def error_counters(self) -> dict[str, int]"),
           "Returns the number of error replies of native commands by code.")
      .def("count_output_disconnection",
           [](EngineHandle& self) {
             const auto held = self.lock();
             ++self.engine->counters.output_disconnections;
           })
      .def("reset_counters", reset_counters)
      .def("take_slow", take_slow, nb::sig("def take_slow(self) -> list[tuple[int, int, int, list[bytes]]]"),
           "Returns and removes (client, ns, unix_ms, arguments) of slow native commands.");
}

}  // namespace verbena::bind
