// _native.kv.Database: one database of an engine, for commands in Python. Strings are stored in the keyspace;
// all other values are Python objects, to which the keyspace holds references.
// Every function takes the engine's lock and needs the GIL.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "bind/kv/store.h"

namespace verbena::bind {
namespace {

// The classes of verbena.kv.values.collections, indexed by kv::Type, and the exception for a wrong type.
// Never freed.
PyObject* kinds[6] = {};
PyObject* wrong_type = nullptr;

constexpr const char* kNames[] = {"none", "string", "hash", "list", "set", "zset"};

[[noreturn]] void raise_wrong_type() {
  const nb::object error = nb::borrow(wrong_type)();
  PyErr_SetObject(wrong_type, error.ptr());
  throw nb::python_error();
}

kv::Type type_of(nb::handle kind) {
  for (size_t i = 2; i < std::size(kinds); ++i) {
    if (kinds[i] == kind.ptr()) return static_cast<kv::Type>(i);
  }
  throw nb::type_error("not a kind of value");
}

kv::Type type_of_value(nb::handle value) {
  return type_of(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())));
}

struct Use {
  explicit Use(DatabaseHandle& self)
      : held(self.engine->lock()),
        keyspace(self.engine->engine->keyspace),
        database(keyspace.database(self.number)) {}
  kv::Engine::Lock held;
  kv::Keyspace& keyspace;
  kv::Database& database;
};

nb::object object_of(const kv::Entry& entry) {
  return nb::borrow(reinterpret_cast<PyObject*>(entry.object()));
}

// The memory use of a value, which the value itself counts.
uint64_t memory_of(nb::handle value) {
  static PyObject* const name = PyUnicode_InternFromString("memory_bytes");
  return nb::cast<uint64_t>(nb::getattr(value, name));
}

// Values hold bytes and numbers only, so they cannot be part of a reference cycle. If the garbage collector
// traversed them, it would stop the store for some 50 ms per five million elements.
void untrack(nb::handle object) {
  if (PyObject_IS_GC(object.ptr())) PyObject_GC_UnTrack(object.ptr());
}

void store_object(Use& use, kv::Entry there, std::string_view key, nb::handle value, uint64_t expires_ms) {
  const kv::Type type = type_of_value(value);
  value.inc_ref();
  untrack(value);
  try {
    use.database.set_object(there, key, type, {reinterpret_cast<uint64_t>(value.ptr()), memory_of(value)},
                            expires_ms);
  } catch (...) {
    value.dec_ref();
    throw;
  }
}

nb::object get(DatabaseHandle& self, const nb::bytes& key, nb::handle kind) {
  Use use(self);
  const kv::Entry entry = use.database.find(view_of(key));
  if (!entry) return nb::none();
  if (entry.type() == kv::Type::string || kinds[static_cast<size_t>(entry.type())] != kind.ptr()) {
    raise_wrong_type();
  }
  return object_of(entry);
}

nb::object obtain(DatabaseHandle& self, const nb::bytes& key, nb::handle kind) {
  nb::object there = get(self, key, kind);
  if (!there.is_none()) return there;
  there = kind();
  Use use(self);
  store_object(use, {}, view_of(key), there, 0);
  return there;
}

nb::object string(DatabaseHandle& self, const nb::bytes& key) {
  Use use(self);
  const kv::Entry entry = use.database.find(view_of(key));
  if (!entry) return nb::none();
  if (entry.type() != kv::Type::string) raise_wrong_type();
  return to_bytes(entry.value());
}

nb::object any(DatabaseHandle& self, const nb::bytes& key) {
  Use use(self);
  const kv::Entry entry = use.database.find(view_of(key));
  if (!entry) return nb::none();
  return entry.type() == kv::Type::string ? nb::object(to_bytes(entry.value())) : object_of(entry);
}

bool remove(Use& use, std::string_view key) {
  const kv::Entry entry = use.database.find(key, false);
  if (!entry) return false;
  use.database.erase(entry);
  return true;
}

void put(DatabaseHandle& self, const nb::bytes& key, nb::handle value, uint64_t expires_ms,
         bool keep_expiry) {
  Use use(self);
  const kv::Entry there = use.database.find(view_of(key), false);
  if (keep_expiry && there) expires_ms = there.expires_ms();
  if (PyBytes_Check(value.ptr())) {
    use.database.set(there, view_of(key), view_of(nb::borrow<nb::bytes>(value)), expires_ms);
  } else if (PyObject_Size(value.ptr()) == 0) {
    remove(use, view_of(key));
  } else {
    store_object(use, there, view_of(key), value, expires_ms);
  }
}

// Call after a change of the value at a key: removes an empty value, updates the memory use and marks
// watchers. True: there is no value at the key now.
bool changed(DatabaseHandle& self, const nb::bytes& key) {
  Use use(self);
  kv::Entry entry = use.database.find(view_of(key), false);
  bool gone = !entry;
  if (entry && entry.type() != kv::Type::string) {
    const nb::object value = object_of(entry);
    if (PyObject_Size(value.ptr()) == 0) {
      use.database.erase(entry);
      gone = true;
    } else {
      use.database.count_object(entry, memory_of(value));
    }
  }
  use.keyspace.changed(use.database, view_of(key));
  return gone;
}

int64_t expires_ms(DatabaseHandle& self, const nb::bytes& key) {
  Use use(self);
  const kv::Entry entry = use.database.find(view_of(key), false);
  return entry ? static_cast<int64_t>(entry.expires_ms()) : -1;
}

void set_expires_ms(DatabaseHandle& self, const nb::bytes& key, uint64_t when) {
  Use use(self);
  if (kv::Entry entry = use.database.find(view_of(key), false)) use.database.set_expires(entry, when);
}

nb::tuple scan(DatabaseHandle& self, uint64_t cursor, size_t count, bool details) {
  Use use(self);
  nb::list keys;
  const uint64_t now = use.keyspace.now_ms();
  const uint64_t next = use.database.scan(cursor, count, [&](kv::Entry entry) {
    if (entry.expires_ms() != 0 && entry.expires_ms() <= now) return;
    if (!details) return keys.append(to_bytes(entry.key()));
    keys.append(nb::make_tuple(
        to_bytes(entry.key()),
        entry.type() == kv::Type::string ? nb::object(to_bytes(entry.value())) : object_of(entry),
        entry.expires_ms()));
  });
  return nb::make_tuple(next, keys);
}

nb::object details(DatabaseHandle& self, const nb::bytes& key) {
  Use use(self);
  const kv::Entry entry = use.database.find(view_of(key), false);
  if (!entry) return nb::none();
  return nb::make_tuple(kNames[static_cast<size_t>(entry.type())], entry.memory_bytes(),
                        use.keyspace.idle_seconds(entry.recency()), use.keyspace.frequency(entry.recency()));
}

}  // namespace

void bind_kv_database(nb::module_& m) {
  m.def(
      "untrack",
      [](const nb::list& objects) {
        for (const nb::handle each : objects) untrack(each);
      },
      nb::arg("objects"), nb::sig("def untrack(objects: list[object]) -> None"),
      "Excludes these objects from Python's garbage collection.");
  m.def(
      "use_kinds",
      [](nb::handle hash, nb::handle list, nb::handle set, nb::handle zset, nb::handle error) {
        const nb::handle given[] = {hash, list, set, zset};
        for (size_t i = 0; i < std::size(given); ++i) kinds[i + 2] = given[i].inc_ref().ptr();
        wrong_type = error.inc_ref().ptr();
      },
      nb::arg("hash"), nb::arg("list"), nb::arg("set"), nb::arg("sorted_set"), nb::arg("wrong_type"),
      "Sets the classes of values that Python holds, and the error for a value of the wrong type.");
  nb::class_<DatabaseHandle>(m, "Database", "One database. Only for the engine's thread, within a command.")
      .def_ro("index", &DatabaseHandle::number)
      .def("get", get, nb::arg("key"), nb::arg("kind"))
      .def("obtain", obtain, nb::arg("key"), nb::arg("kind"))
      .def("string", string, nb::arg("key"))
      .def("any", any, nb::arg("key"))
      .def(
          "type_of",
          [](DatabaseHandle& self, const nb::bytes& key) {
            Use use(self);
            return kNames[static_cast<size_t>(use.database.find(view_of(key), false).type())];
          },
          nb::arg("key"))
      .def("put", put, nb::arg("key"), nb::arg("value"), nb::kw_only(), nb::arg("expires_ms") = 0,
           nb::arg("keep_expiry") = false)
      .def(
          "delete",
          [](DatabaseHandle& self, const nb::bytes& key) {
            Use use(self);
            return remove(use, view_of(key));
          },
          nb::arg("key"))
      .def("changed", changed, nb::arg("key"),
           "Notes that a key has changed: for WATCH, for the memory of a collection, and to remove an empty "
           "one. True: the key was removed.")
      .def(
          "exists",
          [](DatabaseHandle& self, const nb::bytes& key) {
            Use use(self);
            return static_cast<bool>(use.database.find(view_of(key), false));
          },
          nb::arg("key"))
      .def("expires_ms", expires_ms, nb::arg("key"))
      .def("set_expires_ms", set_expires_ms, nb::arg("key"), nb::arg("expires_ms"))
      .def("scan", scan, nb::arg("cursor"), nb::arg("count"), nb::arg("details") = false,
           nb::sig(
               "def scan(self, cursor: int, count: int, details: bool = False) -> tuple[int, list[object]]"),
           "Returns the next cursor and keys, or (key, value, expires_ms) with `details`.")
      .def("random_key",
           [](DatabaseHandle& self) -> nb::object {
             Use use(self);
             const auto key = use.database.random_key();
             return key ? nb::object(to_bytes(*key)) : nb::none();
           })
      .def("details", details, nb::arg("key"),
           "Returns (type, bytes, idle seconds, frequency). None: the key does not exist.")
      .def("clear",
           [](DatabaseHandle& self) {
             Use use(self);
             use.keyspace.mark_all_watchers_dirty(self.number);
             use.database.clear();
           })
      .def_prop_ro("volatile_keys",
                   [](DatabaseHandle& self) {
                     Use use(self);
                     return use.database.volatile_keys();
                   })
      .def("__len__", [](DatabaseHandle& self) {
        Use use(self);
        return use.database.size();
      });
}

}  // namespace verbena::bind
