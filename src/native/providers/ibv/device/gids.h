// Chooses the entry of a port's GID table that reaches a peer. Pure functions over the device's table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "verbs/types.h"

namespace verbena::ibv {

constexpr const char* kRoceV2 = "RoCE v2";

enum class GidFamily : uint8_t { none, ipv4, link_local, global };

inline GidFamily family_of(const Gid& gid) {
  const auto zeros = [&](size_t count) {
    return std::all_of(gid.begin(), gid.begin() + static_cast<ptrdiff_t>(count),
                       [](uint8_t byte) { return byte == 0; });
  };
  if (zeros(gid.size())) return GidFamily::none;
  if (zeros(10) && gid[10] == 0xff && gid[11] == 0xff) return GidFamily::ipv4;
  if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) return GidFamily::link_local;
  return GidFamily::global;
}

// The best local entry for a peer's GID: the source address of the route to it, else one of the same family;
// RoCE v2 before v1. Empty when no entry can reach the peer.
inline std::optional<uint8_t> choose_gid(const PortAttributes& port, const Gid& peer,
                                         const std::optional<Gid>& source) {
  std::optional<uint8_t> best;
  int best_score = 0;
  for (size_t i = 0; i < port.gids.size() && i <= UINT8_MAX; ++i) {
    if (family_of(port.gids[i]) == GidFamily::none || family_of(port.gids[i]) != family_of(peer)) continue;
    const int score = 1 + (port.gid_types[i] == kRoceV2 ? 2 : 0) + (source == port.gids[i] ? 4 : 0);
    if (score > best_score) {
      best = static_cast<uint8_t>(i);
      best_score = score;
    }
  }
  return best;
}

// The entry that peers should use for this port: RoCE v2 over IPv4, then other routable addresses.
inline std::optional<uint8_t> public_gid(const PortAttributes& port) {
  std::optional<uint8_t> best;
  int best_score = 0;
  for (size_t i = 0; i < port.gids.size() && i <= UINT8_MAX; ++i) {
    const GidFamily family = family_of(port.gids[i]);
    if (family == GidFamily::none) continue;
    const int score = (family == GidFamily::ipv4     ? 5
                       : family == GidFamily::global ? 3
                                                     : 1) +
                      (port.gid_types[i] == kRoceV2 ? 1 : 0);
    if (score > best_score) {
      best = static_cast<uint8_t>(i);
      best_score = score;
    }
  }
  return best;
}

}  // namespace verbena::ibv
