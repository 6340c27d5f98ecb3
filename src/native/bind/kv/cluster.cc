// _native.kv: the slot table of an engine, SlotDigest and SlotSweep, for the cluster code in Python.
// Only converts arguments and takes locks; the rules are in kv/store.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <set>

#include "bind/kv/store.h"
#include "kv/journal/log_record.h"
#include "kv/store/slot_digest.h"
#include "util/clock.h"

namespace verbena::bind {
namespace {

using Slots = std::bitset<kv::kSlotCount>;

Slots bits_of(nb::handle slots) {
  Slots bits;
  for (const nb::handle slot : nb::borrow<nb::iterable>(slots)) {
    const auto number = nb::cast<uint32_t>(slot);
    if (number >= kv::kSlotCount) throw nb::value_error("a slot is a number from 0 to 16383");
    bits.set(number);
  }
  return bits;
}

kv::SlotTable& table_of(EngineHandle& self) {
  if (!self.engine->slots) throw nb::value_error("the engine is not part of a cluster");
  return *self.engine->slots;
}

void join_cluster(EngineHandle& self) {
  const auto held = self.lock();
  self.engine->slots = std::make_unique<kv::SlotTable>();
  self.engine->keyspace.count_slots();
}

void set_owners(EngineHandle& self, const nb::bytes& owners, std::vector<std::string> addresses,
                uint16_t primary) {
  kv::SlotTable& table = table_of(self);
  if (owners.size() != sizeof table.owners)
    throw nb::value_error("owners: two bytes for each of 16384 slots");
  const auto held = self.lock();
  std::memcpy(table.owners.data(), owners.c_str(), owners.size());
  for (uint16_t& owner : table.owners) {
    if (owner != kv::SlotTable::kUnassigned && owner >= addresses.size()) owner = kv::SlotTable::kUnassigned;
  }
  table.addresses = std::move(addresses);
  table.primary = primary;
}

void set_slot(EngineHandle& self, uint32_t slot, uint16_t migrating_to, bool importing) {
  kv::SlotTable& table = table_of(self);
  const auto held = self.lock();
  if (slot >= kv::kSlotCount || migrating_to >= table.addresses.size()) throw nb::index_error();
  table.migrating[slot] = migrating_to;
  table.importing[slot] = importing;
}

void release_held(EngineHandle& self) {
  self.loop->post([engine = self.engine] { engine->release_held(); });
}

uint64_t fence(EngineHandle& self, nb::handle slots, bool fenced) {
  const Slots bits = bits_of(slots);
  kv::SlotTable& table = table_of(self);
  const auto held = self.lock();
  for (size_t slot = 0; slot < kv::kSlotCount; ++slot) {
    if (bits.test(slot)) table.fenced[slot] = fenced;
  }
  if (!fenced) release_held(self);
  return self.engine->journal() ? self.engine->journal()->position() : 0;
}

nb::object check(EngineHandle& self, uint64_t id, nb::handle keys, bool writes) {
  const auto arguments = arguments_of(keys);
  const auto held = self.lock();
  const kv::Client* const client = self.engine->find(id);
  if (!client || arguments.empty()) return nb::none();
  std::string error;
  kv::Database& database = self.engine->keyspace.database(client->database);
  switch (table_of(self).check(*client, database, arguments, writes, error)) {
    case kv::SlotTable::Verdict::serve:
      return nb::none();
    case kv::SlotTable::Verdict::hold:
      return nb::str("");
    case kv::SlotTable::Verdict::refuse:
      break;
  }
  return nb::str(error.data(), error.size());
}

// Only database 0: a cluster has no other. The caller holds the engine's lock.
size_t slot_size(EngineHandle& self, uint32_t slot) {
  table_of(self);
  if (slot >= kv::kSlotCount) throw nb::value_error("there is no such slot");
  kv::Keyspace& keyspace = self.engine->keyspace;
  return keyspace.exists(0) ? keyspace.database(0).slot_size(static_cast<uint16_t>(slot)) : 0;
}

// Scans until all keys of the slot have been found, or `most` of them.
nb::list slot_keys(EngineHandle& self, uint32_t slot, size_t most) {
  const auto held = self.lock();
  std::set<std::string> keys;  // a scan may visit a key twice
  most = std::min(most, slot_size(self, slot));
  for (uint64_t cursor = 0; keys.size() < most;) {
    cursor = self.engine->keyspace.database(0).scan(cursor, 1024, [&](kv::Entry entry) {
      if (keys.size() < most && kv::key_slot(entry.key()) == slot) keys.emplace(entry.key());
    });
    if (cursor == 0) break;
  }
  nb::list list;
  for (const std::string& key : keys) list.append(to_bytes(key));
  return list;
}

struct DigestHandle {
  DigestHandle(EngineHandle& handle, nb::handle slots) : engine(&handle) {
    const Slots bits = bits_of(slots);
    const auto held = handle.lock();
    digest = std::make_unique<kv::SlotDigest>(*handle.engine, bits);
  }
  ~DigestHandle() { close(); }
  void close() {
    if (engine->engine.is_inherited()) {
      digest.release();  // leaked: see bind/handle.h
      return;
    }
    const auto held = engine->lock();
    digest.reset();
  }
  kv::SlotDigest& get() const {
    if (!digest) throw nb::value_error("the digest is closed");
    return *digest;
  }
  EngineHandle* engine;
  std::unique_ptr<kv::SlotDigest> digest;
};

struct SweepHandle {
  SweepHandle(EngineHandle& handle, nb::handle slots)
      : engine(&handle), sweep(*handle.engine, bits_of(slots)) {}
  EngineHandle* engine;
  kv::SlotSweep sweep;
};

// Populates memory for values that will arrive. A page fault costs many times what copying into the page
// does, and would happen with the engine's lock held. Needs no lock for it: chunks never move, and
// MADV_POPULATE_WRITE does not change their contents.
void reserve(EngineHandle& self, size_t bytes, double seconds) {
  constexpr size_t kStep = 8u << 20, kSmallPage = 4096;
  const Unlocked unlocked;
  const uint64_t ends = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  std::vector<std::span<std::byte>> found;
  {
    const auto held = self.engine->lock();
    kv::Keyspace& keyspace = self.engine->keyspace;
    const size_t most = keyspace.max_bytes;
    if (most > 0) bytes = std::min(bytes, most - std::min<size_t>(most, keyspace.used_bytes()));
    found = keyspace.arena().reserve(bytes);
  }
  for (const std::span<std::byte> run : found) {
    for (size_t at = 0; at < run.size(); at += kStep) {
      if (now_ns() > ends) return;
      const auto first = reinterpret_cast<uintptr_t>(run.data() + at) / kSmallPage * kSmallPage;
      const auto last = reinterpret_cast<uintptr_t>(run.data() + std::min(run.size(), at + kStep));
      // A kernel without MADV_POPULATE_WRITE: the pages are faulted in later, one by one.
      if (::madvise(reinterpret_cast<void*>(first), last - first, MADV_POPULATE_WRITE) != 0) return;
    }
  }
}

uint64_t deadline(double seconds) { return now_ns() + static_cast<uint64_t>(seconds * 1e9); }

}  // namespace

void bind_kv_cluster(nb::module_& m, nb::class_<EngineHandle>& engine) {
  engine
      .def(
          "join_cluster", join_cluster,
          "Makes the engine a cluster node: from now on it serves only the slots that set_owners() gives it.")
      .def("set_owners", set_owners, nb::arg("owners"), nb::arg("addresses"), nb::kw_only(),
           nb::arg("primary") = kv::SlotTable::kUnassigned,
           "Sets the owner of each slot, two bytes each: an index into `addresses`; 0: this node, 65535: "
           "none.")
      .def("set_slot", set_slot, nb::arg("slot"), nb::kw_only(), nb::arg("migrating_to") = 0,
           nb::arg("importing") = false)
      .def("fence", fence, nb::arg("slots"), nb::arg("fenced"),
           "Makes commands on these slots wait, or lets them run again. Returns the position of the log.")
      .def(
          "commit",
          [](EngineHandle& self) {
            const auto held = self.lock();
            self.engine->commit();
            return self.engine->refusal().empty();
          },
          "Commits the changes so far as the log guarantees it. False: the commit failed.")
      .def("reserve", reserve, nb::arg("nbytes"), nb::kw_only(), nb::arg("seconds"),
           "Reserves memory for `nbytes` of values, as far as possible within the time. StoreError: there is "
           "no memory.")
      .def("release_held", release_held, "Resumes the clients that wait for fenced slots.")
      .def("check_slot", check, nb::arg("client"), nb::arg("keys"), nb::arg("writes"),
           nb::sig("def check_slot(self, client: int, keys: list[bytes], writes: bool) -> str | None"),
           "Returns whether this node may run a command on the keys. None: yes; \"\": it must wait; "
           "otherwise the error reply with the redirection.")
      .def(
          "set_lease",
          [](EngineHandle& self, uint64_t ends_ns) {
            kv::SlotTable& table = table_of(self);
            const auto held = self.lock();
            table.lease_ends_ns = ends_ns;
          },
          nb::arg("ends_ns"),
          "Sets the time of time.monotonic_ns() after which this node serves no command; 0: there is no "
          "lease.")
      .def(
          "count_slot",
          [](EngineHandle& self, uint32_t slot) {
            const auto held = self.lock();
            return slot_size(self, slot);
          },
          nb::arg("slot"))
      .def("slot_keys", slot_keys, nb::arg("slot"), nb::arg("most"),
           nb::sig("def slot_keys(self, slot: int, most: int) -> list[bytes]"));
  nb::class_<DigestHandle>(m, "SlotDigest",
                           "A digest of the keys of some slots, kept up to date while they change.")
      .def(nb::init<EngineHandle&, nb::handle>(), nb::arg("engine"), nb::arg("slots"), nb::keep_alive<1, 2>())
      .def(
          "work",
          [](DigestHandle& self, double seconds, bool still) {
            const Unlocked unlocked;
            const auto held = self.engine->engine->lock();
            return self.get().work(deadline(seconds), still);
          },
          nb::arg("seconds"), nb::kw_only(), nb::arg("still") = false,
          "Does some of the work. True: nothing is left for now. `still`: the slots no longer change, so "
          "that large values which changed too often are included too.")
      .def(
          "finish",
          [](DigestHandle& self, uint64_t now_ms, const std::vector<uint64_t>& left_out) {
            kv::SlotDigest::Sum found;
            {
              const Unlocked unlocked;
              const auto held = self.engine->engine->lock();
              found = self.get().finish(now_ms, left_out);
            }
            return nb::make_tuple(found.sum, found.keys, found.left_out);
          },
          nb::arg("now_ms"), nb::arg("left_out") = std::vector<uint64_t>(),
          nb::sig(
              "def finish(self, now_ms: int, left_out: Sequence[int] = ...) -> tuple[int, int, list[int]]"),
          "Returns the digest, the number of keys, and the numbers of large values that are not included "
          "completely: the digest has only their type, length and expiry, as of those in `left_out`, which "
          "the other end could not include.")
      .def_prop_ro(
          "summed",
          [](DigestHandle& self) {
            const auto held = self.engine->lock();
            return self.get().summed();
          },
          "The number of bytes of strings and of elements that have been read.")
      .def_prop_ro("pending",
                   [](DigestHandle& self) {
                     const auto held = self.engine->lock();
                     return self.get().pending();
                   })
      .def("close", &DigestHandle::close);
  nb::class_<SweepHandle>(m, "SlotSweep", "Deletes the keys of some slots and logs the deletion.")
      .def(nb::init<EngineHandle&, nb::handle>(), nb::arg("engine"), nb::arg("slots"), nb::keep_alive<1, 2>())
      .def(
          "work",
          [](SweepHandle& self, double seconds) {
            const Unlocked unlocked;
            const auto held = self.engine->engine->lock();
            self.engine->engine->refresh_time();
            const bool done = self.sweep.work(deadline(seconds));
            if (self.engine->engine->journal()) self.engine->engine->journal()->end_command();
            return done;
          },
          nb::arg("seconds"), "True: none is left.")
      .def_prop_ro("removed", [](SweepHandle& self) { return self.sweep.removed(); });
}

}  // namespace verbena::bind
