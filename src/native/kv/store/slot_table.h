// Which slots this node serves: asked before every command of a cluster's node. Clients who come with keys of
// other nodes are told where to go; those whose slots are changing hands wait.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kv/engine/client.h"
#include "kv/journal/log_layout.h"
#include "kv/store/keyspace.h"

namespace verbena::kv {

// Where a command has its keys, as COMMAND tells it; 0: it has none.
struct KeySpec {
  int first = 0, last = 0, step = 0;
};

class SlotTable {
 public:
  enum class Verdict : uint8_t { serve, refuse, hold };
  static constexpr uint16_t kThisNode = 0, kUnassigned = 0xffff;

  // May this client run this here and now? If not: `error` says where to go, or it has to wait.
  Verdict check(const Client& client, Database& database, Arguments arguments, KeySpec spec, bool writes,
                std::string& error) const;
  // The same for keys alone.
  Verdict check(const Client& client, Database& database, Arguments arguments, bool writes,
                std::string& error) const {
    return check(client, database, arguments, {0, -1, 1}, writes, error);
  }

  // Everything below needs the engine's lock.

  std::array<uint16_t, kSlotCount> owners;  // an index into `addresses`
  std::vector<std::string> addresses = {""};
  uint16_t primary = kUnassigned;  // whose replica this node is
  std::array<uint16_t, kSlotCount> migrating = {};
  std::array<bool, kSlotCount> importing = {}, fenced = {};
  uint64_t lease_ends_ns = 0;  // by the monotonic clock: nothing is served after it; 0: there is none

  SlotTable() { owners.fill(kUnassigned); }
};

}  // namespace verbena::kv
