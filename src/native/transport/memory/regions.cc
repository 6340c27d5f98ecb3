#include "transport/memory/regions.h"

#include "transport/session/session.h"
#include "util/random.h"

namespace verbena::transport {
namespace {

uint32_t own_access(uint32_t peer_access) {
  const bool writes = peer_access & (access::remote_write | access::remote_atomic);
  return access::window | (writes ? access::local_write : 0);
}

}  // namespace

ExposedRegion::ExposedRegion(uint64_t unguessable, std::byte* data, size_t length, uint32_t peer_access,
                             std::shared_ptr<const Audience> lent_to)
    : key(unguessable),
      access(peer_access),
      audience(std::move(lent_to)),
      memory(data, length, own_access(peer_access)) {}

void RevokedRegion::finish() {
  for (const auto& context : contexts) context->quiesce();
  if (region) region->memory.close();
}

std::shared_ptr<ExposedRegion> RegionTable::expose(std::byte* data, size_t length, uint32_t access,
                                                   std::shared_ptr<const Audience> audience) {
  uint64_t key = 0;
  while (key == 0 || regions_.contains(key)) key = random_value<uint64_t>();
  auto region =
      std::make_shared<ExposedRegion>(key, data, length, access & access::remote, std::move(audience));
  regions_.emplace(key, region);
  return region;
}

std::shared_ptr<ExposedRegion> RegionTable::remove(uint64_t key) {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  std::shared_ptr<ExposedRegion> region = std::move(found->second);
  regions_.erase(found);
  return region;
}

ExposedRegion* RegionTable::find(uint64_t key, const Session& session) const {
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second->audience->admits(session.id())) return nullptr;
  return found->second.get();
}

}  // namespace verbena::transport
