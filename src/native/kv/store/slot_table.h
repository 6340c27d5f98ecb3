// The slots that this node serves, checked before every command on a node of a cluster. Clients with keys of
// other nodes are redirected; commands on fenced slots wait.
// Depends on the keyspace and on clients; not on the cluster map, which Python reads to fill the table.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kv/engine/client.h"
#include "kv/journal/log_layout.h"
#include "kv/store/keyspace.h"

namespace verbena::kv {

// The positions of the keys among a command's arguments, as COMMAND reports them. A step of 0: no keys.
struct KeySpec {
  int first = 0, last = 0, step = 0;
};

class SlotTable {
 public:
  enum class Verdict : uint8_t { serve, refuse, hold };
  static constexpr uint16_t kThisNode = 0, kUnassigned = 0xffff;

  // Checks whether the client may run a command on this node. `refuse`: `error` is the reply (a redirect, or
  // why not); `hold`: the command must wait until the slot is no longer fenced.
  Verdict check(const Client& client, Database& database, Arguments arguments, KeySpec spec, bool writes,
                std::string& error) const;
  // As check(), if all arguments are keys.
  Verdict check(const Client& client, Database& database, Arguments arguments, bool writes,
                std::string& error) const {
    return check(client, database, arguments, {0, -1, 1}, writes, error);
  }

  // Everything below needs the engine's lock.

  std::array<uint16_t, kSlotCount> owners;  // indexes into `addresses`, or kUnassigned
  std::vector<std::string> addresses = {""};
  uint16_t primary = kUnassigned;  // the index of this replica's primary
  std::array<uint16_t, kSlotCount> migrating = {};
  std::array<bool, kSlotCount> importing = {}, fenced = {};
  uint64_t lease_ends_ns = 0;  // monotonic time after which the own slots are not served; 0: no lease

  SlotTable() { owners.fill(kUnassigned); }
};

}  // namespace verbena::kv
