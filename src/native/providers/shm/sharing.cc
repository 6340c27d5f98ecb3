#include "providers/shm/sharing.h"

namespace verbena::shm {

void Sharing::add(uint32_t scope, uint32_t arena) {
  if (arena == 0) return;
  const std::lock_guard lock(mutex_);
  arenas_[scope].insert(arena);
  for (const auto& [qp_num, peer] : peers_) {
    if (peer.pd == scope || soft::window_scope(qp_num) == scope) offer(arena, *peer.link);
  }
}

void Sharing::remove(uint32_t scope, uint32_t arena) {
  if (arena == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = arenas_.find(scope);
  if (found == arenas_.end()) return;
  if (const auto one = found->second.find(arena); one != found->second.end()) found->second.erase(one);
  if (found->second.empty()) arenas_.erase(found);
}

void Sharing::connected(uint32_t qp_num, uint32_t pd, const std::shared_ptr<Link>& link) {
  const std::lock_guard lock(mutex_);
  peers_.insert_or_assign(qp_num, Peer{pd, link});
  offer_scope(pd, *link);
  offer_scope(soft::window_scope(qp_num), *link);
}

void Sharing::disconnected(uint32_t qp_num) {
  const std::lock_guard lock(mutex_);
  peers_.erase(qp_num);
}

void Sharing::offer_scope(uint32_t scope, Link& link) const {
  const auto found = arenas_.find(scope);
  if (found == arenas_.end()) return;
  for (const uint32_t arena : found->second) offer(arena, link);
}

void Sharing::offer(uint32_t arena, Link& link) const {
  pool_.visit(arena, [&](const Arena& shared) { link.offer_arena(shared.id, shared.fd.get()); });
}

}  // namespace verbena::shm
