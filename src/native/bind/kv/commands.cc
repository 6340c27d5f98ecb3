// _native.kv.native_commands(): the table of native commands, from which Python builds its rows. Python
// has no other copy of these facts.
#include "kv/engine/commands.h"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/kv/store.h"

namespace verbena::bind {

void bind_kv_commands(nb::module_& m) {
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
}

}  // namespace verbena::bind
