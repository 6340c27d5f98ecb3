#include "transport/memory/regions.h"

#include "transport/session/session.h"
#include "util/random.h"

namespace verbena::transport {

std::shared_ptr<ExposedRegion> RegionTable::expose(std::byte* data, size_t length, uint32_t access,
                                                   uint64_t only_session) {
  uint64_t key = 0;
  while (key == 0 || regions_.contains(key)) key = random_value<uint64_t>();
  auto region = std::make_shared<ExposedRegion>(key, data, length, access, only_session);
  regions_.emplace(key, region);
  return region;
}

void RegionTable::revoke(ExposedRegion& region) {
  const auto found = regions_.find(region.key);
  if (found == regions_.end()) return;
  const std::shared_ptr<ExposedRegion> keep = found->second;
  regions_.erase(found);
  keep->memory.close();
}

ExposedRegion* RegionTable::find(uint64_t key, const Session& session) const {
  const auto found = regions_.find(key);
  if (found == regions_.end()) return nullptr;
  ExposedRegion& region = *found->second;
  return region.only_session == 0 || region.only_session == session.id() ? &region : nullptr;
}

}  // namespace verbena::transport
