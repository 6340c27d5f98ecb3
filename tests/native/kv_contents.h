// The contents of an engine as text, so that tests can compare two engines. Depends on the engine only.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kv/engine/engine.h"

namespace engines {

// One line per key, sorted: database, key, value and expiry. The caller holds the engine's lock, if threads
// share it.
inline std::string contents(verbena::kv::Engine& engine) {
  std::vector<std::string> lines;
  for (uint32_t i = 0; i < engine.keyspace.databases(); ++i) {
    if (!engine.keyspace.exists(i)) continue;
    uint64_t cursor = 0;
    do {
      cursor = engine.keyspace.database(i).scan(cursor, 100, [&](verbena::kv::Entry entry) {
        lines.push_back(std::to_string(i) + " " + std::string(entry.key()) + " = " +
                        std::string(entry.value()) + " until " + std::to_string(entry.expires_ms()));
      });
    } while (cursor != 0);
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

inline void run(verbena::kv::Engine& engine, verbena::kv::Client& client,
                std::initializer_list<std::string_view> arguments) {
  engine.run(client, std::vector<std::string_view>(arguments));
}

// Runs a command and drops its reply.
inline void run_quietly(verbena::kv::Engine& engine, verbena::kv::Client& client,
                        std::initializer_list<std::string_view> arguments) {
  run(engine, client, arguments);
  client.out.clear();
  client.write_scheduled = false;
}

}  // namespace engines
