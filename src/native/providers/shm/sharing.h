// Sharing: which arenas the peer of each queue pair may map. A peer receives the region table when the
// program has connected a queue pair to it, and an arena when a region or window in it is for that queue
// pair. Depends on links and arenas only; its lock comes after those of queue pairs, and before those of the
// pool and of links.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "providers/shm/link.h"
#include "providers/shm/memory/arena.h"

namespace verbena::shm {

class Sharing {
 public:
  explicit Sharing(const ArenaPool& pool) : pool_(pool) {}

  // Regions and windows of a scope (soft::RegionEntry) lie in this arena; each call counts.
  void add(uint32_t scope, uint32_t arena);
  void remove(uint32_t scope, uint32_t arena);
  // A queue pair of this domain can serve the requests of its peer from now on, or not any longer.
  void connected(uint32_t qp_num, uint32_t pd, const std::shared_ptr<Link>& link);
  void disconnected(uint32_t qp_num);

 private:
  struct Peer {
    uint32_t pd;
    std::shared_ptr<Link> link;
  };
  void offer_scope(uint32_t scope, Link& link) const;
  void offer(uint32_t arena, Link& link) const;

  const ArenaPool& pool_;
  std::mutex mutex_;
  std::map<uint32_t, std::multiset<uint32_t>> arenas_;  // by scope
  std::map<uint32_t, Peer> peers_;                      // by queue pair
};

}  // namespace verbena::shm
